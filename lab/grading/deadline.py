"""An end to judging: what a student's file or a forged report makes of it, no judge computes for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

JUDGE_SECONDS = 20.0  # of computing, not of waiting for ranks, which have a deadline of their own; most take 0.1


class JudgeTookTooLong(BaseException):
    """Not an Exception: no judge may take it for one of its own."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raise JudgeTookTooLong inside of the block when this process has computed for so long in it.

    The clock is the processor time of the process, so that neither waiting nor a busy machine counts. It works in
    the main thread only, which is where checks are run: only there does Python act on signals. It ends Python code
    and regular expressions; what is in a library's code ends first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise JudgeTookTooLong

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)  # and again, should somebody catch it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
