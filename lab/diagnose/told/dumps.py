"""The flight recorder's dumps of a job: a pickle for each rank, read without running anything in it.

TORCH_NCCL_DUMP_ON_TIMEOUT makes NCCL write them; for gloo lab/training/stepping/flight_recorder.py does so.
Source: torch/csrc/distributed/c10d/FlightRecorder.hpp; torch/distributed/flight_recorder reads the same files.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

from lab.collectives.lanes import Lane
from lab.collectives.recorder import Recorder

_NAME = re.compile(r"(?:rank_?|trace_|recorder-)(\d{1,6})$")  # nccl_trace_rank_3; run.sh: flight-recorder-3
_LARGEST = 1 << 28


class _PlainData(pickle.Unpickler):
    """Dicts, lists, texts and numbers; anything else in a dump is not the recorder's."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a dump")


def is_dump(path: Path) -> bool:
    """Whether a file is named and begins like a dump of one rank."""
    if not _NAME.search(path.name):
        return False
    try:
        with path.open("rb") as file:
            return file.read(2)[:1] == b"\x80"
    except OSError:
        return False


def read_dump(path: Path) -> tuple[int, Lane | None]:
    """The rank, and what it had called; None when the file is damaged."""
    named = _NAME.search(path.name)
    rank = int(named[1]) if named else 0
    try:
        if path.stat().st_size > _LARGEST:
            return rank, None
        content = _PlainData(io.BytesIO(path.read_bytes())).load()
        lane = Lane()
        # gloo calls a collective retired when it has failed too: in a job that has hung, none is beyond doubt.
        entries = [{**entry, "retired": False} for entry in content["entries"]]
        for message in Recorder(harness="", entry="").messages(entries):
            lane.feed(message)
        return rank, lane
    except (
        OSError,
        MemoryError,  # a damaged length
        OverflowError,
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
    ):
        return rank, None
