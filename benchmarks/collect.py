"""How long collecting takes, and how much memory, for 1,000 and 10,000 run folders.

Run: python benchmarks/collect.py [RUNS ...]      (needs no GPU)

Every tenth run is damaged in one of several ways, every twentieth is a bare log. Each measurement is a process of
its own; its memory is the most that was ever resident, less that of the same process with ten runs.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]


def write_many(results: Path, count: int) -> None:
    """Copies of a few runs under other names: to write each anew would take longer than to collect them."""
    from run_folders import write_run

    for number in range(count):
        strategy, devices = (
            ("none", 1) if number % 7 == 0 else ("ddp" if number % 2 else "fsdp", 2 ** (number % 4))
        )
        setting = {"precision": ("fp32", "bf16")[number % 2], "global_batch": 64 << (number // 2 % 4)}
        run = write_run(results, strategy, devices, run_id=f"run-{number}", repeat=number % 5 + 1, **setting)
        if number % 10 == 1:
            damaged = run / ("status.json", "run.csv", "metrics.csv", "config.json")[number // 10 % 4]
            damaged.write_bytes((b"", b"\xff\0", damaged.read_bytes()[:-30])[number // 40 % 3])
        if number % 20 == 2:
            (results / f"slurm-{number}.out").write_text("[METRIC] epoch=1 time=4.0\n" * 100)


def collect_in_a_process(results: Path) -> tuple[float, float, float]:
    """(seconds, seconds of the processor, MiB) of collecting the folder."""
    done = subprocess.run(
        [sys.executable, __file__, "--here", str(results)], capture_output=True, text=True, check=True
    )
    seconds, processor, memory = map(float, done.stdout.split())
    return seconds, processor, memory


def here(results: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from lab.sweep.collect.collect import collect

    start, processor = time.perf_counter(), time.process_time()
    collect(results)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, processor, peak / (2**20 if sys.platform == "darwin" else 1024))


def measure(counts: list[int]) -> dict[int, tuple[float, float, float]]:
    """(seconds, seconds of the processor, MiB more than with ten runs) for each number of runs."""
    found = {}
    folder = Path(tempfile.mkdtemp(prefix="collect-"))
    try:
        for count in (10, *counts):
            write_many(folder / str(count), count)
            found[count] = collect_in_a_process(folder / str(count))
            shutil.rmtree(folder / str(count))
    finally:
        shutil.rmtree(folder)
    return {count: (*found[count][:2], found[count][2] - found[10][2]) for count in counts}


def main(argv: list[str]) -> None:
    if argv[:1] == ["--here"]:
        here(Path(argv[1]))
        return
    for count, (seconds, processor, memory) in measure([int(text) for text in argv] or [1_000, 10_000]).items():
        print(
            f"{count:>7,} runs: {seconds:5.1f} s ({processor:.1f} s of the processor), {memory:5.1f} MiB, "
            f"{memory / count * 1024:.1f} KiB a run"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
