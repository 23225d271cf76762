"""Which modules are looked at, also while another thread imports some."""

import sys
import threading
from types import ModuleType

from lab.base.intact import modules_below


def test_modules_are_found_while_another_thread_imports():
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
