"""Which modules are looked at, also while another thread imports some."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

from lab.base.intact import modules_below, settle


def in_a_fork(do: Callable[[], object]) -> None:
    """Where settle() has no effect on the tests after this one."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            do()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def names_below(*names: str) -> set[str]:
    return {module.__name__ for module in modules_below(*names)}


def test_a_process_that_has_settled_finds_what_there_was_and_what_has_come_since():
    def look() -> None:
        sys.modules["lab.base.early"] = ModuleType("lab.base.early")
        sys.modules["elsewhere"] = ModuleType("elsewhere")
        before = names_below("lab.base", "elsewhere")
        settle()
        assert names_below("lab.base", "elsewhere") == before
        sys.modules["lab.base.late"] = late = ModuleType("lab.base.late")
        sys.modules["of_a_test"] = ModuleType("of_a_test")
        assert names_below("lab.base", "of_a_test") == (before | {"lab.base.late", "of_a_test"}) - {"elsewhere"}
        assert late in modules_below("lab.base")
        sys.modules["lab.base.early"] = other = ModuleType("lab.base.early")
        assert other in modules_below("lab.base")
        del sys.modules["lab.base.early"]
        assert "lab.base.early" not in names_below("lab.base")

    in_a_fork(look)


class Unread(dict[str, ModuleType]):
    """Can be asked for single modules, and for the newest, but not be gone through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all modules were gone through")

    copy = items = keys = values = __iter__  # type: ignore[assignment]


def test_a_process_that_has_settled_looks_through_no_other_modules():
    def look() -> None:
        settle()
        sys.modules = Unread(sys.modules)
        assert "lab.base.intact" in names_below("lab.base")

    in_a_fork(look)


def test_modules_are_found_while_another_thread_imports():
    imports_meanwhile()


def test_modules_are_found_while_another_thread_imports_in_a_process_that_has_settled():
    def look() -> None:
        settle()
        imports_meanwhile()

    in_a_fork(look)


def imports_meanwhile() -> None:
    names = [f"lab_test_module_{number}" for number in range(400)]
    end = threading.Event()

    def imports() -> None:
        while not end.is_set():
            for name in names:
                sys.modules[name] = ModuleType(name)
            for name in names:
                sys.modules.pop(name, None)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=imports)
    thread.start()
    try:
        for _ in range(300):
            assert sys.modules["lab.base.intact"] in modules_below("lab.base")
    finally:
        end.set()
        thread.join()
        sys.setswitchinterval(interval)
