"""Inside a rank: the messages that it sends and receives, one to one.

PyTorch's flight recorder notes none of them on gloo (tried on 2.14), so the lab does. dist.send, isend, recv,
irecv and batch_isend_irecv all come to ProcessGroup.send and .recv, and who waits for one does so in Work.wait.
A message counts as done when its wait() has come back: a gloo send waits until the other side receives.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

_FRAMES = 40

Line = tuple[str, int, str]  # file, line, function


@dataclass
class Note:
    """A message that this rank has begun to send or to receive.

    number   counts all of this rank's messages from 0
    peer     the other rank, by its number in the default group; -1 for any
    nth      of this kind, with this peer, tag and group; from 1: it meets the other side's nth
    waiting  the rank is in its wait(), whose lines are in `waits_at`
    """

    number: int
    kind: str  # "send" or "recv"
    group: str
    peer: int
    tag: int
    nth: int
    elements: int
    bytes: int
    type: str
    frames: list[Line]
    waits_at: list[Line]
    waiting: bool = False
    done: bool = False


class Messages:
    """Notes this process's messages once `watch` was called. Lines above the function `entry` are left out.

    notes  all so far, in their order
    """

    def __init__(self, harness: str, entry: str) -> None:
        self.notes: list[Note] = []
        self._entry = (harness, entry)
        self._works: dict[int, tuple[Any, Note]] = {}  # with the Work itself, so that its id stays its own
        self._counts: dict[tuple[str, str, int, int], int] = {}
        self._changed: deque[Note] = deque()  # the main thread appends, the one that tells takes away
        self._in_wait = self._told = False  # of a collective; whether that has been told

    def watch(self) -> None:
        """Note from now on. Needs torch, which this process has loaded."""
        import torch._C._distributed_c10d as c10d

        group: Any = c10d.ProcessGroup
        group.send = self._noted(group.send, "send")
        group.recv = self._noted(group.recv, "recv")
        group.recv_anysource = self._noted(group.recv_anysource, "recv")
        work: Any = c10d.Work
        work.wait = self._waited(work.wait)

    def news(self) -> tuple[list[Note], bool | None]:
        """The notes that have changed since the last call; whether it waits for a collective, if that has."""
        changed: dict[int, Note] = {}
        for _ in range(len(self._changed)):
            note = self._changed.popleft()
            changed[note.number] = note
        waits = self._in_wait
        news = None if waits == self._told else waits
        self._told = waits
        return list(changed.values()), news

    def _noted(self, original: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def begin(group: Any, tensors: list[Any], *where: int) -> Any:
            if len(where) == 2 and not 0 <= where[0] < group.size():  # gloo would end the process by SIGSEGV
                raise ValueError(f"there is no rank {where[0]}: the group has ranks 0 to {group.size() - 1}")
            work = original(group, tensors, *where)
            peer = _global_rank(group, where[0]) if len(where) == 2 else -1
            key = (kind, group.group_name, peer, where[-1])
            self._counts[key] = self._counts.get(key, 0) + 1
            note = Note(
                *(len(self.notes), kind, group.group_name, peer, where[-1], self._counts[key]),
                elements=sum(tensor.numel() for tensor in tensors),
                bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
                type=str(tensors[0].dtype).removeprefix("torch."),
                frames=self._lines(sys._getframe(1)),
                waits_at=[],
            )
            self.notes.append(note)
            self._works[id(work)] = work, note
            self._changed.append(note)
            return work

        return begin

    def _waited(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            _, note = self._works.get(id(work), (None, None))
            if note is None:
                self._in_wait = True
                try:
                    return original(work, *args, **kwargs)
                finally:
                    self._in_wait = False
            note.waits_at, note.waiting = self._lines(sys._getframe(1)), True
            self._changed.append(note)
            result = original(work, *args, **kwargs)
            note.waiting, note.done = False, True
            self._changed.append(note)
            self._works.pop(id(work), None)
            return result

        return wait

    def _lines(self, frame: FrameType | None) -> list[Line]:
        """From the outermost of the check's to the innermost."""
        found: list[Line] = []
        while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != self._entry:
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return found[:_FRAMES][::-1]


def _global_rank(group: Any, rank: int) -> int:
    import torch.distributed as dist

    return dist.get_global_rank(group, rank)
