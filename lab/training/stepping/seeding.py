"""Random numbers: seeds, the state of every generator, and deterministic algorithms.

Weights are drawn from the same seed on every rank. From then on every rank has its own stream: with a common one,
all ranks would drop the same units of their different images. What a loader's workers draw follows from it,
because PyTorch seeds Python, NumPy and torch in them from the rank's torch generator.
"""

import os
import random
from typing import Any

import numpy
import torch

STREAM = 1_000_003  # between the seeds of two ranks; a prime, so that near seeds of two runs do not meet
EPOCH = 15_485_863  # between those of two epochs; another


def seed_everything(seed: int, rank: int, epoch: int = 0) -> None:
    """Seed Python, NumPy and torch (CPU and CUDA) with this rank's own seed for an epoch, counted from 1.

    Each epoch anew, so that it does not matter what was drawn before it: a run that goes on may have drawn less,
    such as the seeds of loader processes that live on from epoch to epoch.
    """
    own = seed + STREAM * rank + EPOCH * epoch
    seed_python_and_numpy(own)
    torch.manual_seed(own)


def seed_python_and_numpy(seed: int) -> None:
    """Seed Python's and NumPy's own generators; main.py seeds torch's, for the weights."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def prepare(seed: int, *, deterministic: bool) -> None:
    """Before anything is drawn: for what is done before seed_everything() is called.

    Args:
        deterministic: use algorithms that give the same bits each time, or fail where PyTorch has none. cuBLAS
            wants its workspace fixed in the environment before its first call (NVIDIA, "Results Reproducibility").
    """
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    seed_python_and_numpy(seed)


def random_states(device: torch.device) -> dict[str, Any]:
    """The state of every generator of this process, as tensors and numbers."""
    version, words, gauss = random.getstate()
    legacy: Any = numpy.random.get_state()
    _, keys, position, has_gauss, cached = legacy
    states: dict[str, Any] = {
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "keys": torch.from_numpy(keys.astype("int64")),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put every generator of this process into the state that `random_states` returned.

    States of a CUDA generator are left out on a CPU, and the generator keeps its seed where there are none.
    """
    python, legacy = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = legacy["keys"].numpy().astype("uint32")
    numpy.random.set_state(("MT19937", keys, legacy["position"], legacy["has_gauss"], legacy["cached"]))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
