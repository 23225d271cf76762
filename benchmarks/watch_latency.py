"""Claim: in `lab watch` the verdict on an edit is there within 0.5 s of the save (median over the exercises).

A cold `lab check`, which has to load torch first, takes several times as long.

Run: python benchmarks/watch_latency.py [--repeats N] [ID ...]      (needs no GPU; two CPU cores are enough)

For each exercise the reference answer is saved N = 10 times, with another comment each time, at moments that
have nothing to do with the rhythm in which the watch looks. So all checks of the exercise run, and they pass:
nothing but a deadlock takes longer (benchmarks/deadlock.py). A notebook's check() asks the same warm server. The
latency runs from the return of the write to the line with the verdict on the standard output of `lab watch`. In
between, the same file is checked by `lab check ID`, from the start of its process to its end.
Prints median, fastest and slowest of each side for each exercise; exit code 1 when the claim does not hold.
"""

from __future__ import annotations

import argparse
import os
import platform
import queue
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from lab.syllabus.syllabus import Exercise, syllabus

ROOT = Path(__file__).resolve().parents[1]
LAB = [sys.executable, "-m", "lab.cli"]
LIMIT = 0.5  # seconds, claimed
PATIENCE = 120.0  # seconds until a line must have come
EDITS_PER_COLD_CHECK = 5


class Watch:
    """A running `lab watch` and the lines it writes, each with the time at which it came."""

    def __init__(self, folder: Path, *exercises: str) -> None:
        command = [*LAB, "watch", *exercises]
        self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put((time.perf_counter(), line))

    def verdict(self, exercise: str, word: str) -> float:
        """Wait for the verdict on an exercise, which must be `word`; return when it came."""
        while True:
            when, line = self._lines.get(timeout=PATIENCE)
            if line.startswith(f" {exercise} "):
                assert word in line, line
                return when

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()


def cold_check(folder: Path, exercise: str) -> float:
    """Return the seconds that `lab check` takes."""
    begin = time.perf_counter()
    subprocess.run([*LAB, "check", exercise], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def measure(folder: Path, exercise: Exercise, repeats: int) -> tuple[list[float], list[float]]:
    """Return the latencies of the watch and the times of cold checks, in seconds."""
    # When the exercise has passed, the watch goes on to this one, which is never done, and so does not end.
    other = "4.0" if exercise.module == "train" else "6.1"
    shutil.rmtree(folder / "exercises", ignore_errors=True)
    shutil.copytree(ROOT / "solutions", folder / "exercises", ignore=shutil.ignore_patterns("__pycache__"))
    never_done = syllabus()[other].file
    shutil.copy(ROOT / "exercises" / never_done, folder / "exercises")
    file = folder / "exercises" / exercise.file
    answer = file.read_text()
    latencies, colds = [], []
    watch = Watch(folder, exercise.id, other)
    try:
        watch.verdict(other, "not started")
        for number in range(repeats):
            time.sleep(0.3 + random.random() / 3)
            file.write_text(f"{answer}# edit {number}\n")
            saved = time.perf_counter()
            latencies.append(watch.verdict(exercise.id, "passed") - saved)
            watch.verdict(other, "not started")
            if number % EDITS_PER_COLD_CHECK == 0:
                colds.append(cold_check(folder, exercise.id))
    finally:
        watch.close()
    return latencies, colds


def spread(seconds: list[float]) -> str:
    """Return median, fastest and slowest as columns."""
    return f"{statistics.median(seconds):7.2f} ({min(seconds):5.2f} to {max(seconds):5.2f}) n={len(seconds):<3}"


def main() -> int:
    """Measure both sides, print the table, return the exit code."""
    parser = argparse.ArgumentParser(
        description="Time from an edit to its verdict, in lab watch and by lab check."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises (default: all)")
    parser.add_argument("--repeats", type=int, default=10, help="edits of each exercise (default: 10)")
    args = parser.parse_args()
    exercises = syllabus().select(args.ids) if args.ids else list(syllabus().exercises)
    print(f"seconds from an edit to the verdict; {os.cpu_count()} cores, {platform.system()}")
    print(f"{'':8}{'lab watch, fastest to slowest':<33}lab check, cold")
    medians, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for exercise in exercises:
            latencies, colds = measure(Path(folder), exercise, args.repeats)
            medians.append(statistics.median(latencies))
            ratios.append(statistics.median(colds) / medians[-1])
            print(f"{exercise.id:5}   {spread(latencies)}   {spread(colds)}", flush=True)
    middle = statistics.median(medians)
    slower = [exercise.id for exercise, median in zip(exercises, medians, strict=True) if median > LIMIT]
    print(f"median over {len(medians)} exercises: {middle:.2f} s (claimed: at most {LIMIT} s)")
    print(f"slower than that: {', '.join(slower) or 'none'}; load at the end {os.getloadavg()[0]:.1f}")
    print(f"a cold check takes {min(ratios):.1f} to {max(ratios):.1f} times as long")
    return 0 if middle <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
