"""What PyTorch's flight recorder knows of a rank's collectives, as plain data.

The recorder (torch's TORCH_FR_BUFFER_SIZE) notes every collective of a process when it is issued, with its Python
frames: those that DDP and FSDP issue too, on gloo as on NCCL. A thread can read it while the main thread waits in
one. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp; measured on torch 2.11 to 2.14.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.grading.reports import Frame

BUFFER_SIZE = 2000  # collectives that a rank remembers
_FRAME_LIMIT = 40


@dataclass(frozen=True)
class Collective:
    """One collective that a rank has issued.

    `number` counts from 1 within its process group; `sizes` are the shapes of its inputs; `done` tells whether it
    has come to its end; `frames` run from the outermost to the innermost.
    """

    group: str
    number: int
    name: str
    sizes: tuple[tuple[int, ...], ...]
    done: bool
    frames: tuple[Frame, ...]

    @property
    def elements(self) -> str:
        """ "[3, 4]" or "[3], [5]"; "no tensor" for a barrier."""
        return ", ".join(str(list(size)) for size in self.sizes) or "no tensor"


def snapshot() -> list[list[Any]]:
    """This process's collectives so far, as the wire can carry them: in the order in which they were issued."""
    import torch._C._distributed_c10d as c10d

    dump: bytes = c10d._dump_fr_trace()  # type: ignore[attr-defined]
    return [_plain(entry) for entry in pickle.loads(dump)["entries"]]


def _plain(entry: Mapping[str, Any]) -> list[Any]:
    frames = [[frame["filename"], int(frame["line"]), frame["name"]] for frame in entry["frames"][:_FRAME_LIMIT]]
    return [
        str(entry["process_group"][0]),
        int(entry["collective_seq_id"]),
        entry["profiling_name"].removeprefix("gloo:").removeprefix("nccl:"),
        [list(size) for size in entry["input_sizes"]],
        bool(entry["retired"]),
        bool(entry.get("is_p2p", False)),
        frames[::-1],
    ]


def read(records: Iterable[Any]) -> list[Collective]:
    """The collectives in what a rank sent. Point-to-point messages are left out: they need no partner in order.

    Raises ValueError or TypeError when a rank has sent something else.
    """
    collectives = []
    for group, number, name, sizes, done, point_to_point, frames in records:
        if not point_to_point:
            collectives.append(
                Collective(
                    group=str(group),
                    number=int(number),
                    name=str(name),
                    sizes=tuple(tuple(int(n) for n in size) for size in sizes),
                    done=bool(done),
                    frames=tuple(
                        Frame(str(file), int(line), str(function), "") for file, line, function in frames
                    ),
                )
            )
    return collectives
