"""Claim: for the reference, for the stubs and for section 9, `lab check` takes less processor time than an earlier
version of the lab did.

Run: python benchmarks/check_times.py [--old DIR] [--repeats N]     (needs no GPU)
     python benchmarks/check_times.py --exercises [--code DIR]      (Linux: which exercise takes what)

Each command runs cold, N times, as a program of its own. With --old, a clone of the repository at the earlier
commit, run by the same Python, the two versions take turns, so that what else the machine does meets both alike.
The ratio of their processor times (user and system, with all ranks) says more than seconds where it is not idle.
Seconds on the wall are printed too, beside what they shall be on two idle cores (AIMS).
--exercises runs all exercises in one process, after each other, and prints what each took: seconds on the wall,
and the processor's in the judge's own process, in the process that forks the ranks, and in the ranks.
The exit code is 1 when the new version takes more processor time than the old one (medians).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PART_ONE = "1 2 3 4 5 6"
# What is checked, from the root of a version -> seconds that it shall take at most on two idle cores.
AIMS = {f"{PART_ONE} --code solutions": 8.0, f"{PART_ONE} --code exercises": 5.0, "9 --code solutions": 12.0}
TICK = os.sysconf("SC_CLK_TCK")


def cost(version: Path, arguments: str) -> tuple[float, float]:
    """Seconds on the wall and of the processor for `lab check` with these arguments, all its ranks included."""
    command = [sys.executable, "-P", "-m", "lab.cli", "check", *arguments.split()]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(version)}
    done = subprocess.run(command, cwd=version, env=env, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: the stubs
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(versions: dict[str, Path], repeats: int) -> bool:
    """Print both sides of each command; whether the new version takes no more."""
    kept = True
    for arguments, aim in AIMS.items():
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in versions}
        for _ in range(repeats):
            for name, place in versions.items():
                found[name].append(cost(place, arguments))
        print(f"lab check {arguments}   (aim: {aim:g} s on two idle cores)")
        for name, costs in found.items():
            walls, processor = zip(*costs, strict=True)
            print(f"  {name:4} {spread(walls)} s wall   {spread(processor)} s processor   n={repeats}", flush=True)
        if "old" in found:
            ratios = [new[1] / old[1] for new, old in zip(found["new"], found["old"], strict=True)]
            print(f"  new / old, processor: {spread(ratios)}", flush=True)
            kept = kept and statistics.median(ratios) <= 1
    return kept


def spread(numbers: tuple[float, ...] | list[float]) -> str:
    return f"{statistics.median(numbers):6.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


def ticks(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that have ended."""
    fields = [int(one) / TICK for one in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
    return fields[0] + fields[1], fields[2] + fields[3]


def by_exercise(code: Path) -> None:
    """Print a line an exercise."""
    from lab.grading.suite import Suite
    from lab.ranks.server import RankServer

    print(
        f"{'':5}{'':12}{'wall':>7}{'judge':>7}{'fork':>7}{'ranks':>7}   groups (the first waits for all imports)"
    )
    with RankServer() as server:
        suite = Suite(code, server=server)
        for exercise in suite.syllabus.every:
            begin, judge, forked = time.monotonic(), time.process_time(), ticks(server._nursery.pid)
            result = suite.run(exercise)
            wall, now = time.monotonic() - begin, ticks(server._nursery.pid)
            columns = (wall, time.process_time() - judge, now[0] - forked[0], now[1] - forked[1])
            groups = sum(len(check.groups) for check in (*result.checks, *result.unsaid))
            numbers = "".join(f"{one:7.2f}" for one in columns)
            print(f"{exercise.id:5}{result.outcome.word:12}{numbers}{groups:9}", flush=True)


def main() -> int:
    """Measure, print, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, metavar="DIR", help="a clone of an earlier version to compare with")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--exercises", action="store_true", help="what each exercise takes, instead")
    parser.add_argument("--code", type=Path, default=ROOT / "solutions", metavar="DIR", help="with --exercises")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}")
    if arguments.exercises:
        by_exercise(arguments.code.resolve())
        kept = True
    else:
        versions = {"old": arguments.old.resolve()} if arguments.old else {}
        kept = compare({**versions, "new": ROOT}, arguments.repeats)
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
