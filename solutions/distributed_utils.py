"""Section 2: who am I, and how do we find each other? Ranks, devices and the process group."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class LaunchEnvironment:
    """What the launcher tells each process about itself."""

    rank: int  # this process among all processes, 0 .. world_size - 1
    local_rank: int  # this process among those of its node
    world_size: int  # number of processes on all nodes


TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


def read_launch_environment(environ: Mapping[str, str]) -> LaunchEnvironment:
    """Read rank, local rank and world size from the variables of torchrun, or else of srun.

    torchrun comes first: where srun starts one torchrun on every node, both sets of variables are there, and
    srun's count the torchruns, not the processes that these start.

    Raises:
        ValueError: variables are missing, are not numbers, or contradict each other. Never guess a world of
            one here: every process would train alone, and nobody would notice.
    """
    # TODO 2.1: choose TORCHRUN's names if any of them is set, else SRUN's. Raise a ValueError that names what
    # is missing; turn the values into integers; check that 0 <= local_rank <= rank < world_size.
    ### BEGIN SOLUTION 2.1
    names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
    missing = [name for name in names if name not in environ]
    if missing:
        raise ValueError(f"{', '.join(missing)} not set: start this program with torchrun or srun")
    values = [environ[name] for name in names]
    if not all(value.isdecimal() for value in values):
        raise ValueError(f"{', '.join(names)} must be whole numbers, got {', '.join(map(repr, values))}")
    rank, local_rank, world_size = map(int, values)
    if not local_rank <= rank < world_size:
        raise ValueError(
            f"{', '.join(names)} contradict each other: rank {rank}, local rank {local_rank}, {world_size} ranks"
        )
    return LaunchEnvironment(rank, local_rank, world_size)
    ### END SOLUTION


def setup(timeout: timedelta = timedelta(minutes=10)) -> torch.device:
    """Choose this process's device and join the process group: nccl with CUDA, gloo without.

    Args:
        timeout: how long a collective may wait for the other ranks before it fails.
    """
    # TODO 2.2: read the launch environment. With CUDA, choose the device by local_rank and make it the current
    # one before init_process_group. A process that is shown a single GPU finds it at index 0. Give
    # init_process_group the rank, the world size and the timeout too.
    ### BEGIN SOLUTION 2.2
    launch = read_launch_environment(os.environ)
    if torch.cuda.is_available():
        # srun --gpus-per-task=1 shows each process its own GPU only, and that one has index 0.
        device = torch.device("cuda", launch.local_rank if torch.cuda.device_count() > 1 else 0)
        torch.cuda.set_device(device)
        backend, device_id = "nccl", device
    else:
        device = torch.device("cpu")
        backend, device_id = "gloo", None
    dist.init_process_group(
        backend, rank=launch.rank, world_size=launch.world_size, timeout=timeout, device_id=device_id
    )
    return device
    ### END SOLUTION


def cleanup() -> None:
    """Leave the process group, if there is one."""
    # TODO 2.3a: destroy the process group. Without one, do nothing.
    ### BEGIN SOLUTION 2.3a
    if dist.is_initialized():
        dist.destroy_process_group()
    ### END SOLUTION


def is_main_process() -> bool:
    """True on rank 0 only: the one that prints and writes files."""
    # TODO 2.3b: say whether this process is rank 0.
    ### BEGIN SOLUTION 2.3b
    return dist.get_rank() == 0
    ### END SOLUTION
