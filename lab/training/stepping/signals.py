"""Being told to stop: SIGTERM and SIGUSR1 are noted, and acted on by all ranks together at a step's end.

A scheduler sends SIGTERM some seconds before it kills a job, and SIGUSR1 earlier if asked to (sbatch
--signal=USR1@120). A rank that saved by itself at once would wait for the others in the middle of their step. So
the signal only sets a flag; at the next step's end the ranks compare their flags, save together and exit.
"""

import mmap
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

EXIT_PREEMPTED = 85  # the exit code of a run that was told to stop, has saved, and can go on with --resume latest

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
VOTE_EVERY = 10  # steps between two comparisons on GPUs; on the CPU it is every step

_watching = False  # whether this process is a rank whose loader workers must outlive its signals
# One byte that a rank shares with its loader workers: 1 once they may be ended.
_may_end = mmap.mmap(-1, 1)


class Preempted(SystemExit):
    """Ends a run that was told to stop. Not an Exception, so that no `except Exception` swallows it."""

    def __init__(self, reason: str) -> None:
        super().__init__(EXIT_PREEMPTED)
        self.reason = reason


class SignalWatch:
    """Notes SIGTERM and SIGUSR1 instead of dying of them; a context manager, for the main thread only."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "SignalWatch":
        global _watching
        for one in SIGNALS:
            self._before[one] = signal.signal(one, self._note)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt_once)
        _watching = True
        _may_end[0] = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _watching
        _watching = False
        _may_end[0] = 1
        for one, handler in self._before.items():
            signal.signal(one, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C. torchrun sends its ranks another one, which must not come between the records and their end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _shield_loader_worker() -> None:
    """In a forked child: let no SIGTERM through while the run goes on.

    Launchers signal a rank's whole process group. A loader worker that died of it would fail the rank before it
    has saved. Workers end when their rank tells them to, or when it is gone. A rank that an error ends does not
    come to tell them: Python sends them SIGTERM as it exits, and waits until they have ended.
    """
    if _watching:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        threading.Thread(target=_end_when_told, name="lab-signals", daemon=True).start()


def _end_when_told() -> None:
    while True:
        signal.sigwait(SIGNALS)
        if _may_end[0]:
            os._exit(0)


os.register_at_fork(after_in_child=_shield_loader_worker)


class Vote:
    """Tells every rank, at the same step, whether any rank has raised a flag.

    On the CPU it answers at once. On a GPU waiting for the answer in each step would stop the CPU from running
    ahead of the GPU, so every VOTE_EVERY steps the answer to the last vote is read and the next vote is sent off.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._calls = 0
        self._answer: Tensor | None = None  # in pinned memory, there once self._arrived
        self._arrived: torch.cuda.Event | None = None

    def __call__(self, stop: bool, total_loss: Tensor) -> tuple[bool, bool]:
        """(somebody shall stop, somebody's loss is not finite); every rank calls it at each step's end.

        Args:
            stop: whether this rank was told to stop.
            total_loss: sum of this rank's losses so far, on its device; not finite once one of them was not.
        """
        if self._device.type != "cuda":
            return self._read(self._count(stop, total_loss))
        self._calls += 1
        if self._calls % VOTE_EVERY:
            return False, False
        said = (False, False)
        if self._answer is not None and self._arrived is not None:
            self._arrived.synchronize()
            said = self._read(self._answer)
        flags = self._count(stop, total_loss)
        self._answer = torch.empty(2, pin_memory=True)
        self._answer.copy_(flags, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()
        return said

    def now(self, stop: bool, total_loss: Tensor) -> tuple[bool, bool]:
        """The same with an answer at once, where waiting does no harm: at an epoch's end."""
        return self._read(self._count(stop, total_loss))

    def _count(self, stop: bool, total_loss: Tensor) -> Tensor:
        # torch.full is a kernel; torch.tensor(..., device="cuda") would be a copy that waits for the GPU.
        mine = torch.full((), float(stop), device=self._device)
        flags = torch.stack([mine, (~torch.isfinite(total_loss)).float()])
        if dist.get_world_size() > 1:
            dist.all_reduce(flags)
        return flags

    @staticmethod
    def _read(flags: Tensor) -> tuple[bool, bool]:
        stop, bad = flags.tolist()
        return stop > 0, bad > 0
