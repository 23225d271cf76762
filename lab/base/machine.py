"""What this machine has, asked without torch: the cores that this process may use, NVIDIA's GPUs and driver."""

import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_VERSION = re.compile(r"(?<!\S)\d+(\.\d+)+(?!\S)")


def usable_cores() -> int:
    """Not os.cpu_count(): a container or a batch job may own only some of the machine's cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def nvidia_smi(*arguments: str) -> str:
    """What the driver's own tool prints; nothing where it is not there or does not answer within 20 s.

    A tool that fails prints why, or what it could find out before: readers take only what has the right form.
    """
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def gpus(listing: str | None = None) -> list[str]:
    """The names of this machine's GPUs, those too that are hidden from CUDA.

    Args:
        listing: what `nvidia-smi -L` has said; None to ask it now.
    """
    return re.findall(r"^GPU \d+: (.+?)(?: \(UUID.*)?$", nvidia_smi("-L") if listing is None else listing, re.M)


def driver_version() -> str:
    """The NVIDIA driver's version; empty where there is none."""
    found = None
    with suppress(OSError):  # not Linux, or a container that hides it
        # The kernel module says it itself, without starting a program.
        found = _VERSION.search(Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
    found = found or _VERSION.search(nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader"))
    return found[0] if found else ""


def free_memory() -> int | None:
    """Bytes of main memory that can be had without swapping; None where nobody says (not on Linux)."""
    with suppress(OSError):
        found = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.M)
        return int(found[1]) * 1024 if found else None
    return None


def peak_resident() -> int:
    """Bytes of memory that this process had at most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
