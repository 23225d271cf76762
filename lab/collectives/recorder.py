"""Inside a rank: what PyTorch's flight recorder knows of its collectives, as messages for the leader of the group.

The recorder notes every collective of a process when it is issued, with its Python frames: those that DDP and FSDP
issue too, on gloo as on NCCL. A thread can read it while the main thread waits in one. An entry is `retired` when
the collective has come to its end, a moment later. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp;
measured on torch 2.9 and 2.14.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from lab.collectives import departures
from lab.collectives.point_to_point import Line, Messages, Note

VARIABLE = "TORCH_FR_BUFFER_SIZE"  # how many collectives it remembers; to be set before the process group exists
# To remember more costs a rank more whenever it is asked: some 50 microseconds an entry, for the frames.
USUAL_SIZE, WHOLE_SIZE = 256, 2000

_MESSAGE = 100  # records in one message
_FRAMES = 40
_TEXT = 1000  # characters
_SIZES = 64


class Recorder:
    """Reads this process's collectives, each of them once.

    Frames above the function `entry` of the file `harness` are the lab's own and are left out. `one_to_one` are
    the messages to single ranks, which are told beside the collectives.
    """

    def __init__(self, harness: str, entry: str) -> None:
        self.one_to_one = Messages(harness, entry)
        self._entry = (harness, entry)
        self._next = 0  # the recorder's running number of the first collective not reported yet
        self._running: set[int] = set()  # reported before they had come to their end
        self._left: list[list[Any]] = []
        self._groups: dict[str, list[int]] = {}  # name -> the process groups that have had it, one after another

    def news(self, *, final: bool) -> Iterator[dict[str, Any]]:
        """Messages with what has happened since the last call: at least one. `final` marks the last of them."""
        known = _dump(frames=False)
        done = [entry["record_id"] for entry in known if entry["retired"] and entry["record_id"] in self._running]
        self._running.difference_update(done)
        self._running.intersection_update(entry["record_id"] for entry in known)
        new: Sequence[Mapping[str, Any]] = []
        if known and known[-1]["record_id"] >= self._next:
            new = [entry for entry in _dump(frames=True) if entry["record_id"] >= self._next]
            self._next = new[-1]["record_id"] + 1
            self._running.update(entry["record_id"] for entry in new if not entry["retired"])
        notes, waits = self.one_to_one.news()
        parts = list(zip_longest(_parts(new), _parts(notes), fillvalue=())) or [((), ())]
        for number, (part, beside) in enumerate(parts, 1):
            last = number == len(parts)
            message = self._message(part, done if last else [], beside, final=final and last)
            yield message if waits is None or not last else {**message, "waits": waits}

    def messages(self, entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same for what a rank that is gone has left behind: the entries of its dump."""
        yield self._message(entries, [], [], final=True)

    def _message(
        self, entries: Sequence[Mapping[str, Any]], done: list[int], notes: Sequence[Note], *, final: bool
    ) -> dict[str, Any]:
        files: dict[str, int] = {}
        # Messages to single ranks are left out: they need no partner in the order of collectives, and gloo's are
        # not among the entries. What the lab itself has noted of them comes beside.
        new = [self._record(entry, files) for entry in entries if not entry.get("is_p2p", False)]
        beside = [_beside(note, files) for note in notes]
        message = {"new": new, "done": done, "one_to_one": beside, "final": final}
        return {"files": list(files), "left": self._news_of_departures(), **message}

    def _news_of_departures(self) -> list[list[Any]]:
        left = departures.departures()
        if left == self._left:
            return []
        self._left = left
        return [[file[:_TEXT], line, function[:_TEXT]] for file, line, function in left]

    def _record(self, entry: Mapping[str, Any], files: dict[str, int]) -> list[Any]:
        return [
            entry["record_id"],
            self._group(str(entry["process_group"][0]), entry["pg_id"]),
            entry["collective_seq_id"],
            entry["profiling_name"].rpartition(":")[2][:_TEXT],
            [list(size) for size in entry["input_sizes"][:_SIZES]],
            [str(kind) for kind in entry["input_dtypes"][:_SIZES]],
            bool(entry["retired"]),
            [
                [files.setdefault(frame["filename"][:_TEXT], len(files)), frame["line"], frame["name"][:_TEXT]]
                for frame in self._own(entry["frames"])
            ],
        ]

    def _own(self, frames: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The frames from the check inwards, outermost first."""
        outer = [i for i, frame in enumerate(frames) if (frame["filename"], frame["name"]) == self._entry]
        return frames[: outer[0] if outer else None][:_FRAMES][::-1]

    def _group(self, name: str, identity: int) -> str:
        """A name of its own for a process group that takes the place of one that was destroyed."""
        groups = self._groups.setdefault(name, [])
        if identity not in groups:
            groups.append(identity)
        index = groups.index(identity)
        return name[:_TEXT] if index == 0 else f"{name[:_TEXT]} ({index + 1})"


def _parts(records: Sequence[Any]) -> list[Sequence[Any]]:
    return [records[start : start + _MESSAGE] for start in range(0, len(records), _MESSAGE)]


def _beside(note: Note, files: dict[str, int]) -> list[Any]:
    def numbered(lines: Sequence[Line]) -> list[list[Any]]:
        return [
            [files.setdefault(file[:_TEXT], len(files)), line, function[:_TEXT]] for file, line, function in lines
        ]

    return [
        *(note.number, note.kind, note.group, note.peer, note.tag, note.nth, note.elements, note.type),
        *(note.waiting, note.done, numbered(note.frames), numbered(note.waits_at)),
    ]


def _dump(*, frames: bool) -> list[dict[str, Any]]:
    import torch._C._distributed_c10d as c10d

    dump: bytes = c10d._dump_fr_trace(True, frames, False)  # type: ignore[attr-defined]
    entries: list[dict[str, Any]] = pickle.loads(dump).get("entries", [])  # this process's own, not a message
    return entries
