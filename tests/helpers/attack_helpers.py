"""Shared by the attack tests: one small exercise, a grader for it, and a look at what an attack has left."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import attack_observers as observers
import torch
from rank_helpers import living, wait_for

from lab.grading.check import Check, Group, Order
from lab.grading.diagnosis import Diagnosis, Outcome, Passed
from lab.grading.suite import run_exercise
from lab.ranks import platform
from lab.ranks.confine import Limits
from lab.ranks.sandbox import Sandbox, SandboxError, copied
from lab.ranks.server import PRELOAD, RankServer
from lab.syllabus.syllabus import Exercise

LIMIT = 20.0  # seconds that a group gets
HANGS = 4.0  # the same where it is sure to use them all
OVER = 8.0  # seconds over it that an attack may cost, on a busy machine
EXERCISE = Exercise("3.2", "Sum over the ranks", "data", "answer", 10, 10, (), ("One.",))

PERFECT = """
    import torch.distributed as dist

    def answer(numbers):
        dist.all_reduce(numbers)
        return numbers
"""

# The first line of every attack.
HEAD = "import ctypes, gc, os, signal, socket, subprocess, sys, threading, time, torch\n"


# A RESULT frame for the lab's own channel, made by the student's module from scratch.
# A frame for the lab's own channel, made by the student's module from scratch.
FORGE = """
def forge(value, kind=b"R"):
    from lab.ranks import wire
    for sock in [one for one in gc.get_objects() if isinstance(one, socket.socket)]:
        try:
            sock.sendall(wire.frame(kind, wire.encode(value)))
        except OSError:  # one of the harness's that has been closed
            pass
"""

# What follows replaces the harness's own observe function, in whatever way its module can be found.
REPLACE = """
def replace(function):
    import attack_observers
    attack_observers.answer = function
    for frame in [sys._getframe(n) for n in range(1, 20) if n < len(__import__("inspect").stack())]:
        for name, value in list(frame.f_locals.items()):
            if callable(value) and getattr(value, "__module__", "") == "attack_observers":
                try:
                    value.__code__ = function.__code__
                except Exception:
                    pass
"""


def judge(group: Group, limit: float) -> None:
    generator = torch.Generator()
    generator.seed()
    numbers = torch.randn(2, 5, generator=generator)
    reports = group.observe(Order(observers.answer, 2, {"numbers": list(numbers)}, timeout=limit))
    for rank, report in enumerate(reports):
        value = report.get("sum") if isinstance(report, dict) else None
        fits = isinstance(value, torch.Tensor) and value.shape == (5,) and value.dtype == torch.float32
        if not fits or not torch.allclose(value, numbers.sum(0)):
            raise Diagnosis(
                "wrong-sum", saw=f"rank {rank} said {str(value)[:80]}", means="It is the sum.", look="data.py"
            )


def sandboxed() -> RankServer:
    """A server whose groups live in the sandbox. Raises SandboxError where that cannot be."""
    sandbox = Sandbox(Limits(memory=1 << 30, processes=24), readable=[Path(__file__).parent])
    sandbox.require()
    return RankServer(sandbox=sandbox, preload=[name for name in PRELOAD if name != "torch._dynamo"])


def why_no_sandbox() -> str:
    """The reason why there can be no sandbox here; empty where there can."""
    try:
        Sandbox().require()
    except SandboxError as error:
        return str(error)
    return ""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text if name != "data.py" else HEAD + dedent(text))
    return folder


def in_answer(body: str) -> str:
    """A module whose answer() does this."""
    return "def answer(numbers):\n" + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())


@dataclass
class Grader:
    """Checks submissions on one server, and looks after each whether anything is left."""

    server: RankServer
    place: Path

    def outcome(self, code: Path, limit: float = LIMIT) -> Outcome:
        check = Check("3.2", "the sum is right", lambda group: judge(group, limit))
        with copied(code) as copy:
            return run_exercise(EXERCISE, copy, server=self.server, checks=[check]).outcome

    def attacked_by(self, code: Path, limit: float = LIMIT) -> Outcome:
        """The outcome of a submission, which must not be passed and leaves nothing; a perfect one passes next."""
        watched = self.place
        before = fingerprint(watched)
        begin = time.monotonic()
        outcome = self.outcome(code, limit)
        seconds = time.monotonic() - begin
        assert not isinstance(outcome, Passed)
        assert seconds < limit + OVER
        assert fingerprint(watched) == before, "files of the grader, of the submission or of others have changed"
        if sys.platform == "linux":
            self.assert_no_process_is_left()
        assert self.outcome(self.place / "perfect") == Passed(), "the next submission pays for the attack"
        return outcome

    def assert_no_process_is_left(self) -> None:
        sandboxed = self.server._sandbox is not None
        nursery = self.server._nursery.pid
        if sandboxed:
            (nursery,) = platform.children(nursery) or [0]  # below bubblewrap
        wait_for(lambda: not living(platform.children(nursery)), "the end of what was left", 10)


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file, folder and link below, with its mode and content."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(top, name)
            content = b""
            if path.is_symlink():
                content = os.readlink(path).encode()
            elif path.is_file() and path.stat().st_size < 1 << 20:
                content = path.read_bytes()
            found[str(path)] = f"{path.lstat().st_mode:o} {hashlib.sha256(content).hexdigest()}"
    return found
