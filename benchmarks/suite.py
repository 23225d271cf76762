"""Claim: the whole reference suite, every check of every exercise on solutions/, takes less than 15 s on two CPU
cores through the lab's rank server, and at least 8 times less than if every group of ranks were started by
torch.multiprocessing.spawn.

Run: python benchmarks/suite.py [--repeats N]      (needs no GPU)

The suite runs cold, as `lab check --code solutions` does: importing torch counts. Meanwhile the groups that it
starts are written down, with what their ranks do and the inputs they get. For spawn each of these groups is
started again N times, and its ranks do the same work; the medians are added up. There the groups run one after
another, as tests do; the lab runs the groups of one check side by side: part of what it gains. What only starting
costs is measured too, for each kind of group (how many ranks, with a process group or without). Both sides are
measured one after the other: the load before and after is printed, and should be near 0 before.
The exit code is 1 when the claim does not hold.
"""

from __future__ import annotations

import argparse
import collections
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from lab.ranks import rank as lab_rank
from lab.ranks.environment import harness_path, importable_name
from lab.ranks.reports import GroupResult
from lab.ranks.server import RankServer

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "solutions"

Kind = tuple[int, bool]  # number of ranks, with a process group
Request = dict[str, Any]  # one group: what the lab's leader is told of it
LIMIT, RATIO = 15.0, 8.0  # claimed: seconds at most, and times less than spawn at least


class CountingServer(RankServer):
    """A rank server that remembers what groups it was asked for, and of what kinds."""

    def __init__(self) -> None:
        self.groups: collections.Counter[Kind] = collections.Counter()
        self.requests: list[Request] = []
        self._counting = threading.Lock()  # several groups are asked for at once
        super().__init__()

    def run(self, observe: Any, world_size: int, **options: Any) -> GroupResult:
        process_group = options.get("set_up_process_group", True)
        with self._counting:
            self.groups[world_size, process_group] += 1
            self.requests.append(
                {
                    "observe": importable_name(observe),
                    "world_size": world_size,
                    "set_up_process_group": process_group,
                    "inputs": options.get("inputs"),
                    "env": options.get("env", {}),
                    "trace": False,
                }
            )
        return super().run(observe, world_size, **options)


class SpawnedRank(lab_rank.Rank):
    """What an observe function gets in a process of torch.multiprocessing.spawn."""

    def __init__(self, rank: int, world_size: int, inputs: object) -> None:
        self.rank, self.world_size, self.code, self._inputs = rank, world_size, CODE, [inputs]


def through_the_lab() -> tuple[float, CountingServer]:
    """Seconds for all exercises on the reference, from the first import on, and the server with what it took."""
    begin = time.monotonic()
    with CountingServer() as server:
        from lab.grading.suite import Suite

        suite = Suite(CODE, server=server)
        for exercise in suite.syllabus.exercises:
            result = suite.run(exercise)
            if result.outcome.word != "passed":
                sys.exit(f"{exercise.id} did not pass on solutions/: {result.outcome}")
        return time.monotonic() - begin, server


def works(rank: int, request: Request, port: int) -> None:
    """A rank that does what the lab's would do."""
    with open(os.devnull, "w") as nothing:  # what it raises comes back all the same
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    sys.path[:] = harness_path(CODE)
    os.chdir(CODE)
    lab_rank._set_environment(rank, request, port)
    del os.environ["TORCHELASTIC_USE_AGENT_STORE"]  # rank 0 keeps the store itself
    import torch.distributed as dist

    barrier = dist.barrier  # some checks put a recorder in its place
    lab_rank._observe(SpawnedRank(rank, request["world_size"], request["inputs"]), request)
    if dist.is_initialized():
        barrier()  # rank 0 has the store that the others still need
    os._exit(0)  # gloo's threads now and then abort a process that Python takes down


def work_through_spawn(request: Request) -> float:
    """Seconds for one group that does what the lab's did."""
    import torch.multiprocessing as mp

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begin = time.monotonic()
    mp.spawn(works, (request, port), nprocs=request["world_size"])
    return time.monotonic() - begin


def spawned(rank: int, world_size: int, process_group: bool, store: str) -> None:
    """A rank that only starts; with a process group it meets the others once."""
    if process_group:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
        dist.barrier()
        dist.destroy_process_group()


def through_spawn(kind: Kind) -> float:
    """Seconds for one group of this kind."""
    import torch.multiprocessing as mp

    world_size, process_group = kind
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(spawned, (world_size, process_group, str(Path(folder) / "store")), nprocs=world_size)
    return time.monotonic() - begin


def main() -> int:
    """Measure both sides, print the figures, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each kind of group, with spawn")
    arguments = parser.parse_args()

    load = os.getloadavg()[0]
    lab, server = through_the_lab()
    print(f"the lab  {lab:6.1f} s for {len(server.requests)} groups of ranks, imports included")
    start = 0.0
    for kind, count in sorted(server.groups.items()):
        one = statistics.median(through_spawn(kind) for _ in range(arguments.repeats))
        start += count * one
        how = "in a process group" if kind[1] else "without a process group"
        print(f"spawn    {one:6.1f} s to start one group of {kind[0]} {how}, times {count}")
    spawn = sum(
        statistics.median(work_through_spawn(request) for _ in range(arguments.repeats))
        for request in server.requests
    )
    print(f"spawn    {spawn:6.1f} s for all of them with their work, {start:.1f} s to start them")
    print(f"ratio    {spawn / lab:6.1f}    (claimed: at least {RATIO:g}, and at most {LIMIT:g} s)")
    print(f"load     {load:6.1f} before, {os.getloadavg()[0]:.1f} at the end")
    return 0 if lab <= LIMIT and spawn / lab >= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
