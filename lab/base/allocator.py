"""glibc's malloc told to keep the memory that a program frees, for programs that ask for it again at once.

By default glibc gets a block of 32 MiB and more from the kernel (mmap) and gives it back when it is freed
(munmap); smaller ones it gives back when they are the last in the heap. Training on a CPU frees all activations in
each step, so every step the kernel hands out, and clears, the same gigabytes again: with 512 images a rank that
takes as long as computing does. See mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

KEEPS = "glibc, keeps freed memory"

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h
_LARGEST = 2**30  # bytes: blocks up to here come from the heap
_OWN = tuple(f"MALLOC_{name}_" for name in ("MMAP_THRESHOLD", "TRIM_THRESHOLD", "MMAP_MAX", "TOP_PAD"))


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> str:
    """Let this process, and those that are forked from it, keep freed memory for the next step.

    Settings of one's own in the environment stay as they are, and so does an allocator that was put before
    glibc's (LD_PRELOAD). Where there is no glibc (macOS, musl) nothing is done.

    Returns:
        What the process allocates with from now on, for the records: KEEPS, or the settings that were found; empty
        where there is no glibc.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return ""
    own = [f"{name}={environ[name]}" for name in _OWN if name in environ]
    tunables = environ.get("GLIBC_TUNABLES", "").split(":")
    own += [tunable for tunable in tunables if tunable.startswith("glibc.malloc.")]
    own += [Path(library).name for library in environ.get("LD_PRELOAD", "").split() if "malloc" in library]
    if own:
        return " ".join(own)
    # Before 2.35 the threshold could not be more than 32 MiB, but mmap be left out altogether.
    large = libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST) or libc.mallopt(_M_MMAP_MAX, 0)
    return KEEPS if large and libc.mallopt(_M_TRIM_THRESHOLD, -1) else "glibc"  # -1: never
