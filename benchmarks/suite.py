"""Claim: the whole reference suite, every check of every exercise on solutions/, takes less than 15 s on two CPU
cores through the lab's rank server, and at least 8 times less than if every group of ranks were started by
torch.multiprocessing.spawn.

Run: python benchmarks/suite.py [--repeats N]      (needs no GPU)

The suite runs cold, as `lab check --code solutions` does: importing torch counts. Meanwhile the groups that it
starts are written down. For spawn each kind of group (how many ranks, with a process group or without) is started
N times, and does nothing but that; the median of each kind counts as often as the suite has started one. The
checks' own work is left out on that side, so that the ratio says rather too little than too much. There the groups
run one after another, as tests do; the lab runs the groups of one check side by side: part of what it gains. Both
sides are measured once, one after the other: the load before and after is printed, and should be near 0 before.
The exit code is 1 when the claim does not hold.
"""

from __future__ import annotations

import argparse
import collections
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from lab.grading.ranks import GroupResult, RankServer

ROOT = Path(__file__).resolve().parent.parent

Kind = tuple[int, bool]  # number of ranks, with a process group
LIMIT, RATIO = 15.0, 8.0  # claimed: seconds at most, and times less than spawn at least


class CountingServer(RankServer):
    """A rank server that remembers what kinds of groups it was asked for."""

    def __init__(self) -> None:
        self.groups: collections.Counter[Kind] = collections.Counter()
        self._counting = threading.Lock()  # several groups are asked for at once
        super().__init__()

    def run(self, observe: Any, world_size: int, **options: Any) -> GroupResult:
        with self._counting:
            self.groups[world_size, options.get("set_up_process_group", True)] += 1
        return super().run(observe, world_size, **options)


def through_the_lab() -> tuple[float, collections.Counter[Kind]]:
    """Seconds for all exercises on the reference, from the first import on, and the groups that it took."""
    begin = time.monotonic()
    with CountingServer() as server:
        from lab.grading.suite import Suite

        suite = Suite(ROOT / "solutions", server=server)
        for exercise in suite.syllabus.exercises:
            result = suite.run(exercise)
            if result.outcome.word != "passed":
                sys.exit(f"{exercise.id} did not pass on solutions/: {result.outcome}")
        return time.monotonic() - begin, server.groups


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
    lab, groups = through_the_lab()
    print(f"the lab     {lab:6.1f} s for {sum(groups.values())} groups of ranks, imports included")
    spawn = 0.0
    for kind, count in sorted(groups.items()):
        one = statistics.median(through_spawn(kind) for _ in range(arguments.repeats))
        spawn += count * one
        how = "in a process group" if kind[1] else "without a process group"
        print(f"spawn       {one:6.1f} s for one group of {kind[0]} {how}, times {count}")
    print(f"spawn       {spawn:6.1f} s for all of them, without the checks' own work")
    print(f"ratio       {spawn / lab:6.1f}    (claimed: at least {RATIO:g}, and at most {LIMIT:g} s)")
    print(f"load        {load:6.1f} before, {os.getloadavg()[0]:.1f} at the end")
    return 0 if lab <= LIMIT and spawn / lab >= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
