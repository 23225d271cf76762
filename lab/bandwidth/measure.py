"""What each rank does: the collectives of each size, timed."""

import math
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from lab.bandwidth.timings import ALL_GATHER, ALL_REDUCE, COLLECTIVES, ITEM, Timing, require_enough

WARM_UP, REPEATS = 3, 7
LONG_ENOUGH = 5e-3  # seconds that a repeat shall last, so that the clock and the start are little of it
MOST_CALLS = 200  # in a repeat
PATIENCE = timedelta(minutes=5)


def measure(sizes: Sequence[int], *, rank: int, local_rank: int, ranks: int, cpu: bool) -> list[Timing]:
    """Time every collective. A call of all ranks; each gets all timings.

    Where there are GPUs, calls of a repeat follow each other on the stream without waiting, as in nccl-tests.

    Args:
        sizes: bytes, rounded down to the same whole number of float32 for each rank.
        cpu: gloo on the CPU, also where there are GPUs.

    Raises:
        UsageError: a size leaves a rank without a number.
    """
    for size in sizes:
        require_enough(size, ranks)
    if torch.cuda.is_available() and not cpu:
        # srun --gpus-per-task=1 shows each process its own GPU only, and that one has index 0.
        device = torch.device("cuda", local_rank if torch.cuda.device_count() > 1 else 0)
        torch.cuda.set_device(device)
        backend, device_id, name = "nccl", device, torch.cuda.get_device_name(device)
    else:
        device, backend, device_id, name = torch.device("cpu"), "gloo", None, "cpu"
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=PATIENCE, device_id=device_id)
    try:
        hosts: list[str | None] = [None] * ranks
        dist.all_gather_object(hosts, socket.gethostname())
        nodes = len(set(hosts))
        timings = []
        for collective in COLLECTIVES:
            for size in sizes:
                items = size // (ITEM * ranks)
                seconds = _seconds(_call(collective, items, ranks, device), device)
                timings.append(Timing(collective, ranks, nodes, items * ITEM * ranks, seconds, backend, name))
        return timings
    finally:
        dist.destroy_process_group()


def _call(collective: str, items: int, ranks: int, device: torch.device) -> Callable[[], object]:
    """A call of the collective. Zeros: sums of them stay what they are, however often."""
    whole = torch.zeros(items * ranks, device=device)
    part = torch.zeros(items, device=device)
    if collective == ALL_REDUCE:
        return lambda: dist.all_reduce(whole)
    if collective == ALL_GATHER:
        return lambda: dist.all_gather_into_tensor(whole, part)
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """Of a call: the median over repeats of the slowest rank."""
    _timed(call, WARM_UP, device)
    once = float(_slowest([_timed(call, 1, device)], device)[0])
    calls = min(MOST_CALLS, max(1, math.ceil(LONG_ENOUGH / once)))
    return median(_slowest([_timed(call, calls, device) for _ in range(REPEATS)], device).tolist())


def _timed(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds of a call on this rank, after all have met."""
    dist.barrier()
    _wait(device)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (time.perf_counter() - begin) / calls


def _slowest(seconds: Sequence[float], device: torch.device) -> Tensor:
    everyone = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(everyone, op=dist.ReduceOp.MAX)
    return everyone


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
