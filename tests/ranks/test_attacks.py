"""Code that does not want to be graded but to win, or to do harm: it gains nothing, and nobody else pays for it.

Each attack is tried on a small exercise (attack_helpers.py). Those here hurt no machine, so they are tried with
and without the sandbox; test_attacks_sandbox.py has those that must be locked in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_helpers import (
    FORGE,
    HANGS,
    LIMIT,
    PERFECT,
    REPLACE,
    Grader,
    in_answer,
    sandboxed,
    why_no_sandbox,
    write,
)

from lab.grading.diagnosis import UNUSABLE_REPORT, Failed
from lab.ranks.server import server

NO_SANDBOX = why_no_sandbox()


@pytest.fixture(scope="module", params=["plain", "sandbox"])
def rank_server(request: pytest.FixtureRequest) -> Iterator:
    if request.param == "plain":
        yield server()
        return
    if NO_SANDBOX:
        pytest.skip(NO_SANDBOX)
    with sandboxed() as own:
        yield own


@pytest.fixture
def grader(rank_server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grader:
    write(tmp_path / "perfect", {"data.py": PERFECT})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return Grader(rank_server, tmp_path)


# name -> (the module, what the diagnosis must be called; any if empty)
ATTACKS: dict[str, tuple[str, str]] = {
    "exits with 0 at import": ("sys.exit(0)", "exited"),
    "ends with 0 at import": ("os._exit(0)", "exited"),
    "exits with 0 when called": (in_answer("sys.exit(0)"), "exited"),
    "ends with 0 when called": (in_answer("print('1 passed')\nos._exit(0)"), "exited"),
    "ends at exit": ("import atexit\natexit.register(os._exit, 0)\ndef answer(numbers): return 0", "wrong-sum"),
    "says not started": (in_answer("raise NotImplementedError('Exercise 3.2 is not done yet: answer()')"), "-"),
    "says blocked": (in_answer("raise NotImplementedError('Exercise 1.1 is not done yet: CNN')"), "-"),
    "patches torch": (
        """
        import torch.distributed as dist
        dist.all_reduce = lambda *args, **kwargs: None
        torch.equal = torch.allclose = lambda *args, **kwargs: True
        torch.Tensor.__eq__ = lambda *args: torch.tensor(True)
        def answer(numbers):
            dist.all_reduce(numbers)
            return numbers
        """,
        "wrong-sum",
    ),
    "patches builtins": (
        """
        import builtins
        builtins.isinstance = lambda *args: True
        builtins.len = lambda thing: 5
        builtins.open = lambda *args, **kwargs: None
        builtins.all = builtins.any = lambda things: True
        def answer(numbers): return numbers
        """,
        "",
    ),
    "patches the lab's wire": (
        """
        from lab.ranks import rank, wire
        wire.encode = lambda *args, **kwargs: b"passed"
        rank.describe = lambda error: {}
        def answer(numbers): return numbers
        """,
        "",
    ),
    "empties sys.modules": ("sys.modules.clear()\ndef answer(numbers): return numbers", ""),
    "writes a result frame itself": (
        FORGE + "\nforge({'sum': torch.zeros(5)})\ndef answer(numbers): return numbers", "wrong-sum",
    ),
    "writes a verdict": (FORGE + "\nforge({'outcome': 'passed', 'points': 100, 'sum': None})", "wrong-sum"),
    "forges the lab's error": (
        FORGE
        + """
import lab.ranks.server as ours
forge({"type": "AssertionError", "message": "the lab is broken", "frames": [[ours.__file__, 1, "run", ""]],
       "todo": None}, b"X")
""",
        UNUSABLE_REPORT,
    ),
    "floods the lab's channel": (FORGE + "\nwhile True: forge(None, b'A')", ""),
    "closes the lab's channel": ("os.closerange(3, 4096)\ndef answer(numbers): return numbers", ""),
    "returns forged plain data": (REPLACE + "\nreplace(lambda rank: {'sum': torch.zeros(5)})", ""),
    "returns whatever it received": (
        REPLACE + "\nreplace(lambda rank: {'sum': rank.receive()['numbers'][rank.rank]})", "",
    ),
    "looks for the judge's values": (
        in_answer(
            """
            found = [one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.shape == (5,)]
            frame = sys._getframe()
            while frame:
                found += [one for one in frame.f_locals.values() if isinstance(one, torch.Tensor)]
                frame = frame.f_back
            return max(found, key=lambda one: float(one.abs().sum()))
            """
        ),
        "wrong-sum",
    ),
    "returns a huge list": (in_answer("return list(range(1_500_000))"), ""),
    "returns a huge tensor": (in_answer("return torch.zeros(40_000_000)"), ""),
    "returns a deep list": (
        in_answer("value = []\nfor _ in range(100_000): value = [value]\nreturn value"), "",
    ),
    "returns itself": (in_answer("value = []\nvalue.append(value)\nreturn value"), ""),
    "returns nan": (in_answer("return numbers * float('nan')"), "wrong-sum"),
    "returns infinities": (in_answer("return numbers * float('inf')"), "wrong-sum"),
    "returns an integer of 4000 digits": (in_answer("return 10**4000"), ""),
    "returns an evil object": (
        """
        class Evil(torch.Tensor):
            def __eq__(self, other): return True
            def __repr__(self): raise RuntimeError("no")
            __str__ = __len__ = __bool__ = __iter__ = __float__ = __repr__
        class Worse(str):
            def __str__(self): os._exit(0)
            __eq__ = __hash__ = __repr__ = __str__
        def answer(numbers): return Evil() if numbers[0] > 0 else {Worse("x").join("ab"): Worse("x")}
        """,
        "",
    ),
    "raises an evil error": (
        """
        class Evil(Exception):
            def __str__(self): raise self
            __repr__ = __str__
        def answer(numbers): raise Evil
        """,
        "raised",
    ),
    "leaves threads": (
        """
        def spin():
            while True: time.sleep(0.01)
        def answer(numbers):
            for _ in range(8): threading.Thread(target=spin).start()
            return numbers
        """,
        "wrong-sum",
    ),
    "hooks into everything": (
        """
        import atexit
        def stay(*args):
            while True: time.sleep(1)
        sys.addaudithook(lambda event, args: None)
        sys.excepthook = sys.unraisablehook = threading.excepthook = stay
        atexit.register(stay)
        for number in range(1, 64):
            try: signal.signal(number, stay)
            except (OSError, ValueError): pass
        def answer(numbers): return numbers
        """,
        "wrong-sum",
    ),
    "changes path, folder, mask, variables": (
        """
        sys.path[:] = []
        os.umask(0o777)
        os.environ.clear()
        def answer(numbers):
            os.chdir("/")
            return numbers
        """,
        "wrong-sum",
    ),
    "sets keys in the store": (
        in_answer(
            """
            import torch.distributed as dist
            dist.barrier()  # all have joined: a slow rank would be kept out by the keys
            store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, False)
            for key in ("sum", "default_pg/0//cpu//0/0", "worker_count"):
                store.set(key, "passed")
            return numbers
            """
        ),
        "wrong-sum",
    ),
    "sleeps for ever": (in_answer("time.sleep(1e6)"), "hang"),
    "loops with signals ignored": (
        in_answer("for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass"), "hang",
    ),
    "prints 100 MB": (in_answer("for _ in range(100): sys.stdout.write('x' * 1_000_000)\nreturn numbers"), ""),
    "prints 100 MB on stderr": (
        in_answer("for _ in range(100): os.write(2, b'\\xff' * 1_000_000)\nreturn numbers"), "",
    ),
    "forks children in new sessions": (
        in_answer(
            """
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        signal.signal(signal.SIGTERM, signal.SIG_IGN)
                        time.sleep(1e6)
                    os._exit(0)
            subprocess.Popen(["sleep", "1000000"], start_new_session=True)
            return numbers
            """
        ),
        "wrong-sum",
    ),
    "kills its leader": (in_answer("os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"), "killed"),
    "stops its leader": (in_answer("os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(60)"), "killed"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gains_nothing(grader: Grader, name: str) -> None:
    code, called = ATTACKS[name]
    hangs = called == "hang" or name in ("patches builtins", "floods the lab's channel")
    folder = write(grader.place / "attack", {"data.py": code})
    outcome = grader.attacked_by(folder, HANGS if hangs else LIMIT)
    if called not in ("", "-"):
        assert isinstance(outcome, Failed)
        assert outcome.diagnosis.name == called, outcome.diagnosis.lines
    assert isinstance(outcome, Failed) == (called != "-"), outcome


def test_the_perfect_one_passes(grader: Grader) -> None:
    """Otherwise not passing would prove nothing."""
    with pytest.raises(AssertionError):
        grader.attacked_by(grader.place / "perfect")


def test_standard_modules_in_the_folder_shadow_nothing(grader: Grader) -> None:
    fake = "def __getattr__(name): return lambda *args, **kwargs: True\n"
    names = ["json", "torch", "random", "socket", "attack_observers", "lab", "traceback", "struct", "encodings"]
    files = {f"{name}.py": fake for name in names}
    code = write(grader.place / "attack", {**files, "data.py": "import json\ndef answer(numbers): return numbers"})
    grader.attacked_by(code)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\xff\xfe\x00\x01", "syntax-error"),
        (b"x = 1\n\0\n", "syntax-error"),
        (b"#" * 50_000_000, "file-too-large"),
        (b"(" * 40_000, "syntax-error"),
        (b"x = " + b"-" * 40_000 + b"1", "syntax-error"),
        ("pipe", "no-file"),
        ("folder", "no-file"),
        ("link", "no-file"),
    ],
    ids=["bytes", "nul", "50 MB", "brackets", "signs", "pipe", "folder", "link"],
)
def test_what_is_no_module(grader: Grader, content: bytes | str, name: str) -> None:
    import os

    (grader.place / "attack").mkdir()
    file = grader.place / "attack" / "data.py"
    if content == "pipe":
        os.mkfifo(file)
    elif content == "folder":
        file.mkdir()
    elif content == "link":
        file.symlink_to("/etc/passwd")
    else:
        assert isinstance(content, bytes)
        file.write_bytes(content)
    outcome = grader.attacked_by(grader.place / "attack")
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.name == name
    assert "root:" not in " ".join(outcome.diagnosis.lines)
