"""Claim: a check on two real ranks takes at least 10 times less through the lab's rank server than through
torch.multiprocessing.spawn, because the ranks are forked from a process that has torch loaded.

Run: python benchmarks/rank_groups.py [--repeats N]      (needs no GPU; two CPU cores are enough)

Both sides do the same: start 2 ranks, set up gloo on loopback, all_reduce a vector drawn by the judge, return
it, end the ranks. They alternate in one run, N = 10 times each; the server is warm, and its first group, which
waits for its imports, is shown by itself. Prints the median, the fastest and the slowest of each side and the
ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # both sides; the server does so by itself

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from lab.ranks.rank import Rank
from lab.ranks.server import RankServer

WORLD_SIZE = 2


def observe(rank: Rank) -> torch.Tensor:
    """The check in a rank of the server, which has set up the process group."""
    total: torch.Tensor = rank.receive()
    dist.all_reduce(total)
    return total


def spawned(rank: int, store: str, inputs: torch.Tensor, results: mp.SimpleQueue) -> None:
    """The same check in a spawned process."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD_SIZE)
    total = inputs.clone()
    dist.all_reduce(total)
    results.put((rank, total.tolist()))  # plain data: a tensor would travel through shared memory
    dist.destroy_process_group()


def through_server(server: RankServer, inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return what each rank has after the all_reduce."""
    return server.run("rank_groups:observe", WORLD_SIZE, code=None, inputs=inputs).values


def through_spawn(inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return what each rank has after the all_reduce."""
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(spawned, (str(Path(folder) / "store"), inputs, results), nprocs=WORLD_SIZE)
    return [torch.tensor(total) for _, total in sorted(results.get() for _ in range(WORLD_SIZE))]


def line(name: str, seconds: list[float]) -> str:
    """Return one line of the table."""
    middle = statistics.median(seconds)
    return f"{name:<32} {middle:8.3f} s   {min(seconds):8.3f} to {max(seconds):.3f} s   n = {len(seconds)}"


def main() -> int:
    """Measure both sides, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description="Time a 2-rank check through the rank server and through spawn.")
    parser.add_argument("--repeats", type=int, default=10, help="runs of each side (default: 10)")
    repeats = parser.parse_args().repeats
    server_times, spawn_times = [], []
    begin = time.perf_counter()
    with RankServer() as server:
        through_server(server, torch.zeros(1))
        first = time.perf_counter() - begin
        for _ in range(repeats):
            inputs = torch.randn(1000)
            for times, run in ((server_times, lambda x: through_server(server, x)), (spawn_times, through_spawn)):
                begin = time.perf_counter()
                values = run(inputs)
                times.append(time.perf_counter() - begin)
                assert all(torch.equal(value, inputs * WORLD_SIZE) for value in values)
    ratio = statistics.median(spawn_times) / statistics.median(server_times)
    print(f"{WORLD_SIZE} gloo ranks, torch {torch.__version__}, {os.cpu_count()} cores, {platform.system()}")
    print(f"{'':<32} {'median':>8}     fastest to slowest")
    print(line("torch.multiprocessing.spawn", spawn_times))
    print(line("rank server", server_times))
    print(f"first group of the server, with its imports: {first:.3f} s")
    print(f"ratio of the medians: {ratio:.1f} (claimed: at least 10)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
