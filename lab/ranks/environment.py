"""What the ranks inherit from the grader's own process, and what they must not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from lab.base.paths import ROOT
from lab.ranks import platform

# Variables of a launcher: the grader may itself run in a job, which is none of the ranks' business.
_LAUNCHER_PREFIXES = (
    *("SLURM", "SBATCH", "SRUN", "PMI", "OMPI_"),
    *("TORCHELASTIC_", "TORCH_DISTRIBUTED_", "TORCH_NCCL_", "TORCH_FR_", "NCCL_", "GLOO_"),
    *("LOCAL_", "GROUP_", "ROLE_", "MASTER_"),
)
# Where it is set, all ranks seem to be on one node: to see whether a count of its GPUs is what is wrong.
ONE_NODE = "LAB_ONE_NODE"

_LAUNCHER_NAMES = {"RANK", "WORLD_SIZE"}


def clean_environment() -> dict[str, str]:
    """Return this process's environment for the nursery: no launcher's variables, one thread a rank, no GPU."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _LAUNCHER_NAMES and not name.startswith(_LAUNCHER_PREFIXES)
    }
    env.pop("PYTHONSAFEPATH", None)  # `python -m lab.ranks.nursery` is started in ROOT and must find it there
    env.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    env["CUDA_VISIBLE_DEVICES"] = ""
    return {**env, **platform.FORK_ENVIRONMENT}


def harness_path(code: Path | None) -> list[str]:
    """Return sys.path for the ranks: this process's, without the student's folder and without "", the cwd."""
    path = [
        entry for entry in sys.path if entry and (code is None or not Path(entry).resolve().is_relative_to(code))
    ]
    return path if str(ROOT) in path else [*path, str(ROOT)]


def importable_name(function: Callable[..., object] | str) -> str:
    """Return "module:qualname" of a function, which a rank imports by it. Raises ValueError if it could not."""
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    module, _, qualname = name.partition(":")
    if not module or not qualname or module == "__main__" or "<" in qualname:
        raise ValueError(f"{name} cannot be imported by a rank: name a function at the top of a module")
    return name
