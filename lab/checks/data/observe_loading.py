"""What ranks observe of load_once(): who loads when."""

import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch.utils.data import Dataset

from lab.checks.common.attempt import attempt
from lab.ranks.rank import Rank

PATIENCE = 20.0  # seconds to wait for another rank that may never come


HEAD_START = 1.0  # seconds the first one's load takes at most, to see whether the others wait for it
PER_NODE = 2  # ranks of each of the nodes that there seem to be

_OF_GROUPS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter"),
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
)


def watch_loading(rank: Rank) -> list[dict[str, Any]]:
    """Call load_once with each of the judge's layouts: what this rank did and when, on the machine's clock."""
    board = Board(rank)
    board.record_barriers()
    board.shorten_sleep()
    seem_on_nodes(rank.rank, rank.world_size)
    data = rank.student("data")
    reports: list[dict[str, Any]] = []
    tokens: list[Loaded] = []
    for layout in rank.receive()["layouts"]:
        board.turn_over()
        token = Loaded()
        board.hold_back(layout)
        try:
            result = data.load_once(loading(board, token, rank.rank in layout), is_first=rank.rank in layout)
        except Exception:
            board.tell("raised")  # so that nobody is held back for this rank
            raise
        events = [{"what": what.split()[0], "time": when} for what, when in board.events]
        reports.append(
            {
                "events": events,
                "own_result": result is token,
                "remembered": any(result is earlier for earlier in tokens),
                "type": type(result).__name__,
                "slept": board.slept,
                "not_awaited": board.not_awaited,
                "partial": board.partial,
                "is_load": getattr(result, "__qualname__", "") == "load",
            }
        )
        tokens.append(token)
        if not board.meet():
            break  # others hang in there; the judge sees them
    return reports


def seem_on_nodes(rank: int, world_size: int) -> None:
    """Have launchers and the machine say that the ranks are on several nodes, with PER_NODE of them each.

    Not where a wrong answer is tried again without a launcher's word of nodes. To be called before a student's
    module can take a function by name.
    """
    if "LOCAL_WORLD_SIZE" not in os.environ:
        return
    each = min(PER_NODE, world_size)
    node, place = divmod(rank, each)
    nodes, host = world_size // each, f"node{node}"
    numbers = {
        "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": each, "GROUP_RANK": node, "SLURM_LOCALID": place,
        "SLURM_NTASKS_PER_NODE": each, "SLURM_NODEID": node, "SLURM_NNODES": nodes,
    }  # fmt: skip
    os.environ.update({name: str(number) for name, number in numbers.items()})
    os.environ.update(SLURM_TASKS_PER_NODE=f"{each}(x{nodes})", SLURMD_NODENAME=host)
    system = os.uname()
    os.uname = lambda: os.uname_result((system.sysname, host, *tuple(system)[2:]))
    socket.gethostname = platform.node = lambda: host


def loading(board: "Board", token: object, is_first: bool) -> Callable[[], object]:
    """What load_once() gets as load()."""

    def load() -> object:
        board.note("load")
        if is_first:
            board.watch_the_others()
        board.note("loaded")
        return token

    load.__qualname__ = "load"  # as an error names it
    return load


class Loaded(Dataset):
    """What load() gives: a data set of no samples, so one that an `if` takes for False."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> object:
        raise IndexError(f"there is no sample {index} in an empty data set")


class LeftBehindError(Exception):
    """Another rank waits in a barrier to which this one, as its message says after so many, will never come."""


class Board:
    """What this rank does and when, for itself and, through the group's store, for the others.

    No collectives: they would pair with those of the student's code.
    """

    def __init__(self, rank: Rank) -> None:
        self.events: list[tuple[str, float]] = []
        self.slept = False  # the student's code has called time.sleep
        self.not_awaited = False  # it has begun a barrier with async_op=True, which does not wait by itself
        self.partial = False  # it has come to a barrier, or the like, of a group without some of the ranks
        self._rank, self._code = rank.rank, str(rank.code)
        self._others = [other for other in range(rank.world_size) if other != rank.rank]
        self._store = dist.distributed_c10d._get_default_store()
        self._page = self._barriers = 0

    def turn_over(self) -> None:
        """Begin anew."""
        self._page += 1
        self._barriers = 0
        self.slept = self.not_awaited = self.partial = False
        self.events.clear()

    def note(self, what: str) -> None:
        self.events.append((what, time.monotonic()))
        self.tell(what)

    def tell(self, what: str) -> None:
        """Let the other ranks know, and nobody else."""
        self._store.set(self._key(what, self._rank), "1")

    def noted(self, what: str, rank: int) -> bool:
        return self._store.check([self._key(what, rank)])

    def hold_back(self, firsts: Sequence[int]) -> None:
        """Let those that go first come last: who does not wait for them is early every time, not by chance."""
        if self._rank in firsts:
            others = [other for other in self._others if other not in firsts]
            self.wait(HEAD_START, "load", "barrier 1", "collective", "done", "raised", ranks=others)

    def wait(self, seconds: float, *whats: str, ranks: Sequence[int] | None = None) -> bool:
        """Whether every other rank, or each of `ranks`, has noted one of these in time."""
        end = time.monotonic() + seconds
        expected = self._others if ranks is None else ranks
        while not all(any(self.noted(what, other) for what in whats) for other in expected):
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def meet(self) -> bool:
        """Whether all other ranks have come to the end of this page, too, in time.

        Raises LeftBehindError as soon as it is certain that one never will: it has begun a barrier more.
        """
        self.note("done")
        end = time.monotonic() + PATIENCE
        while missing := [other for other in self._others if not self.noted("done", other)]:
            if any(self.noted(f"barrier {self._barriers + 1}", other) for other in missing):
                raise LeftBehindError(str(self._barriers))
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def watch_the_others(self) -> None:
        """In the first one's load: give the others the time to do what they should not do yet.

        Each of them loads too early, or is seen to come to a barrier. If this rank has a barrier behind it,
        they may have come from there too, so only loads count; and so they do behind a barrier of some ranks.
        """
        self.wait(HEAD_START, "load", *([] if self._barriers else ["barrier 1"]))
        if any(self.noted("partial", other) for other in self._others):
            self.wait(HEAD_START, "load")

    def record_barriers(self) -> None:
        """Note every barrier. To be called before a student's module can take the function by name."""
        for name in ("barrier", "monitored_barrier", *_OF_GROUPS):
            wrapped = self._of_group if name in _OF_GROUPS else self._recorded
            recorded = wrapped(getattr(dist, name))
            setattr(dist, name, recorded)
            setattr(dist.distributed_c10d, name, recorded)

    def shorten_sleep(self) -> None:
        """No download is over after a certain time, so for the student's code no time passes in a sleep."""
        sleep = time.sleep

        def shortened(seconds: float) -> None:
            if sys._getframe(1).f_code.co_filename.startswith(self._code):
                self.slept = True
                seconds = min(seconds, 0.002)
            sleep(seconds)

        time.sleep = shortened  # type: ignore[assignment]

    def _recorded(self, barrier: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._barriers += 1
            self._note_group(args, kwargs)
            self.note(f"barrier {self._barriers}")
            result = barrier(*args, **kwargs)
            self.not_awaited |= result is not None
            return result

        return recorded

    def _of_group(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            self._note_group(args, kwargs)
            self.tell("collective")
            return collective(*args, **kwargs)

        return noting

    def _note_group(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        groups = [one for one in (*args, *kwargs.values()) if isinstance(one, dist.ProcessGroup)]
        if any(group.size() < dist.get_world_size() for group in groups):
            self.partial = True
            self.tell("partial")

    def _key(self, what: str, rank: int) -> str:
        return f"check {self._page}: rank {rank}: {what}"


def fail_to_load(rank: Rank) -> dict[str, Any]:
    """Call load_once, as the only rank, with a load that raises."""
    seem_on_nodes(rank.rank, rank.world_size)
    data = rank.student("data")
    message = rank.receive()
    calls = 0

    def load() -> object:
        nonlocal calls
        calls += 1
        raise OSError(message)

    result = attempt(rank, data.load_once, load, is_first=True)
    return {"error": result["error"], "calls": calls}
