"""What the ranks of test_ranks.py and test_ranks_end.py do. Imported in the ranks, so without pytest."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from lab.ranks import rank as rank_module
from lab.ranks import wire
from lab.ranks.rank import Rank


def place(rank: Rank) -> dict[str, Any]:
    total = torch.tensor([float(rank.rank)])
    dist.all_reduce(total)
    return {
        "rank": rank.rank,
        "world_size": (rank.world_size, dist.get_world_size()),
        "sum": total,
        "inputs": rank.receive(),
        "again": rank.receive(),
    }


def call(rank: Rank) -> object:
    """Call the student's `act(rank)` of work.py."""
    return rank.student("work").act(rank.rank)


def call_first(rank: Rank) -> object:
    """Call the student's `act` on rank 0 while the others wait in a collective."""
    if rank.rank == 0:
        rank.student("work").act(rank.rank)
    dist.barrier()
    return None


def imports(rank: Rank) -> dict[str, Any]:
    before = list(sys.path)
    work = rank.student("work")
    return {
        "before": before,
        "after": list(sys.path),
        "cwd": os.getcwd(),
        "same": rank.student("work") is work and rank.student("data") is work.data,
        "answer": work.answer(),
        "own json": wire.decode(wire.encode({"a": [1]})),
    }


def environment_variables(rank: Rank) -> dict[str, Any]:
    return {**os.environ, "threads": torch.get_num_threads(), "fds": sorted(map(int, os.listdir("/dev/fd")))}


def env_rendezvous(rank: Rank) -> float:
    assert not dist.is_initialized()
    dist.init_process_group("gloo", init_method="env://")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    return float(ones)


def random_numbers(rank: Rank) -> list[float]:
    import random

    import numpy

    return [random.random(), float(numpy.random.rand())]


def two_parts_in_memory(rank: Rank) -> tuple[int, int]:
    """Count a secret in the process's own memory, before and after the judge's inputs were received."""
    before = _count_in_memory(b"the judge's " + b"secret")
    rank.receive()
    return before, _count_in_memory(b"the judge's " + b"secret")


def _count_in_memory(needle: bytes) -> int:
    # The needle itself and copies of it made by counting: bounded, unlike the 1000 copies in the inputs.
    found = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            start, end = (int(bound, 16) for bound in span.split("-"))
            if mode.startswith("rw") and end - start < 1 << 30:
                try:
                    memory.seek(start)
                    found += memory.read(end - start).count(needle)
                except (OSError, ValueError, OverflowError):  # special mappings
                    continue
    return found


def large(rank: Rank) -> torch.Tensor:
    return torch.zeros(wire.MAX_PAYLOAD, dtype=torch.uint8)


def not_plain(rank: Rank) -> object:
    return {"model": rank}


def channel_garbage(rank: Rank) -> NoReturn:
    """Write the judge's inputs to the channel instead of a result, and stay."""
    rank._channel.sendall(rank.receive())
    time.sleep(600)
    raise AssertionError


def forged_failure(rank: Rank) -> NoReturn:
    rank._channel.sendall(wire.frame(rank_module.RAISED, wire.encode(rank.receive())))
    time.sleep(600)
    raise AssertionError


def close_everything(rank: Rank) -> None:
    os.closerange(3, 1024)


def greedy(rank: Rank) -> NoReturn:
    """Ask for the inputs over and over without reading them."""
    while True:
        rank._channel.sendall(wire.frame(rank_module.ASK))


def leave_strays(rank: Rank) -> list[int]:
    """Leave processes behind: in a new session twice removed, ignoring signals, forking without end."""
    return [_daemon(_sleep), _daemon(_keep_forking), _subprocess()]


def leave_strays_and(rank: Rank) -> NoReturn:
    """Leave strays, write all ids to a file and do to the leader or the nursery what the inputs say."""
    harness = [os.getppid(), _parent(os.getppid())]
    ids = [*harness, os.getpid(), *leave_strays(rank)]
    file = Path(f"pids.{rank.rank}")
    file.write_text(" ".join(map(str, ids)))
    file.rename(f"{file}.done")
    if (order := rank.receive()) is not None:
        victim, number = order
        os.kill(harness[victim], number)
    time.sleep(600)
    raise AssertionError


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _daemon(do: Any) -> int:
    """Run `do` in a process of its own session whose parent is gone; return its id."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.write(write, b"%d\n" % os.getpid())
            do()
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        pid = int(pipe.readline())
    os.waitpid(-1, 0)
    return pid


def _sleep() -> None:
    time.sleep(600)


def _keep_forking() -> None:
    while True:
        if os.fork():
            time.sleep(0.01)
            os._exit(0)


def _subprocess() -> int:
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


def join(rank: Rank) -> int:
    """How often joining a process group looks through all packages that are installed."""
    looked: list[object] = []
    usual = importlib.metadata.entry_points

    def entry_points(**wanted: Any) -> Any:
        looked.append(wanted)
        return usual(**wanted)

    importlib.metadata.entry_points = entry_points  # type: ignore[assignment]
    dist.init_process_group("gloo")
    return len(looked)


def finders(rank: Rank) -> tuple[bool, str]:
    """Whether what is known of Python's own folders is kept, and what loads a sibling of work.py.

    Before that, somebody has looked into the student's folder.
    """
    own = str(Path(json.__file__).parent)
    known = {own: FileFinder(own), str(rank.code): FileFinder(str(rank.code), (SourceFileLoader, [".py"]))}
    sys.path_importer_cache.update(known)
    loader = rank.student("work").sibling.__loader__
    return sys.path_importer_cache[own] is known[own], type(loader).__name__
