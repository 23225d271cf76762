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
    raise NotImplementedError("Exercise 2.1 is not done yet: read_launch_environment() in distributed_utils.py")


def setup(timeout: timedelta = timedelta(minutes=10)) -> torch.device:
    """Choose this process's device and join the process group: nccl with CUDA, gloo without.

    Args:
        timeout: how long a collective may wait for the other ranks before it fails.
    """
    # TODO 2.2: read the launch environment. With CUDA, choose the device by local_rank and make it the current
    # one before init_process_group. A process that is shown a single GPU finds it at index 0. Give
    # init_process_group the rank, the world size and the timeout too.
    raise NotImplementedError("Exercise 2.2 is not done yet: setup() in distributed_utils.py")


def cleanup() -> None:
    """Leave the process group, if there is one."""
    # TODO 2.3a: destroy the process group. Without one, do nothing.
    raise NotImplementedError("Exercise 2.3a is not done yet: cleanup() in distributed_utils.py")


def is_main_process() -> bool:
    """True on rank 0 only: the one that prints and writes files."""
    # TODO 2.3b: say whether this process is rank 0.
    raise NotImplementedError("Exercise 2.3b is not done yet: is_main_process() in distributed_utils.py")
