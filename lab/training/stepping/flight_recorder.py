"""A rank's last collectives, for whoever looks into a run that has hung: `lab diagnose`.

PyTorch's flight recorder notes every collective. NCCL's watchdog writes it to a file when a collective runs into
its timeout (TORCH_NCCL_DUMP_ON_TIMEOUT=1); gloo has no watchdog, so we do the same when a rank fails. The
variables are PyTorch's own: TORCH_FR_BUFFER_SIZE (how many collectives; 0 is off) and TORCH_FR_DUMP_TEMP_FILE or,
before 2.10, TORCH_NCCL_DEBUG_INFO_TEMP_FILE (the file's name without the rank at its end). run.sh sets them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.runs.options.launcher import rank_from_environment

_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def dump(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Write this rank's dump, if the environment asks for it and NCCL has not done so. Returns the file."""
    if not any(environ.get(name, "0") not in ("", "0") for name in _SIZES):
        return None
    prefix = next((environ[name] for name in _FILES if environ.get(name)), None)
    if prefix is None:
        return None
    import torch._C._distributed_c10d as c10d

    file = Path(f"{prefix}{rank_from_environment()}")
    try:
        if file.exists():
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(c10d._dump_fr_trace())  # type: ignore[attr-defined]
    except OSError as error:  # the run has failed already: its own error is the one to be read
        print(f"main.py: no flight recorder dump in {file}: {error.strerror}", file=sys.stderr)
        return None
    return file
