"""Where a run's figures come from: what was configured, and on which software and hardware. Imports no torch.

Two runs with the same configuration hash did the same thing; two with the same variant, model, data set, precision
and batch did the same work, on however many devices and however spread.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.machine import driver_version
from lab.base.paths import PACKAGE
from lab.runs.options.evaluation import spelled
from lab.runs.options.parser import build_parser

if TYPE_CHECKING:
    import torch

# Options that say where things are, what a run is called or what it writes: the same work with any of them.
ADMINISTRATIVE = (
    *("run_id", "output_dir", "data_dir", "scaling", "repeat", "dry_run", "print_every", "resume"),
    *("no_checkpoints", "save_frequency", "cache_dir", "profile", "nvtx", "startup_times", "tensorboard"),
    *("command", "checkpoint_format"),
)
# Options that a record has a column of its own for, or that follow from those.
IN_COLUMNS = (
    *("strategy", "model", "dataset", "precision", "no_amp", "epochs", "seed", "bucket_cap_mb", "input"),
    *("global_batch_size", "per_device_batch_size"),
)


def variant(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """The options that make the work another one and that no column shows, as they would be typed.

    Args:
        options: as parsed, before anything was filled in.
        defaults: what the parser gives for no arguments.
    """
    words = []
    for name, value in sorted(vars(options).items()):
        if name in ADMINISTRATIVE or name in IN_COLUMNS or value == getattr(defaults, name, None):
            continue
        words.append(spelled(name, value))
    return " ".join(words)


def config_hash(resolved: argparse.Namespace, world_size: int) -> str:
    """Twelve hexadecimal digits for all that is configured but names and places: repeats have the same."""
    record = {name: str(value) for name, value in vars(resolved).items() if name not in ADMINISTRATIVE}
    text = json.dumps(record | {"world_size": world_size}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def git_commit(folder: Path) -> str:
    """The commit that `folder` is at, with a + where its tracked files were changed; empty outside of git."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def columns(
    options: argparse.Namespace,
    resolved: argparse.Namespace,
    world_size: int,
    device: "torch.device",
    allocator: str,
) -> dict[str, str]:
    """The columns of run.csv that say what ran on what.

    Args:
        options: as parsed.
        resolved: with what was filled in for this number of ranks and this device.
        allocator: of main memory, where that is the device's.
    """
    import torch  # here, because the sweep reads the rest of this file without it

    on_gpu = device.type == "cuda"
    nccl = (
        ".".join(map(str, torch.cuda.nccl.version())) if on_gpu and torch.distributed.is_nccl_available() else ""
    )
    libraries = {"torch": str(torch.__version__), "cuda": torch.version.cuda or "" if on_gpu else "", "nccl": nccl}
    return {
        "commit": git_commit(PACKAGE) or os.environ.get("LAB_COMMIT", ""),  # a copy outside of git
        "variant": variant(options, build_parser().parse_args([])),
        "config_hash": config_hash(resolved, world_size),
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "driver": driver_version() if on_gpu else "",
        "versions": versions(libraries),
        "allocator": allocator,
    }


def versions(libraries: Mapping[str, str]) -> str:
    """`python 3.11.2, torch 2.14.0, nccl 2.28.3`, for one column."""
    parts = {"python": platform.python_version(), **libraries}
    return ", ".join(f"{name} {version}" for name, version in parts.items() if version)
