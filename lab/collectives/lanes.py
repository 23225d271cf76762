"""The collectives that a rank has issued, and its messages to single ranks, as whoever compares them sees them.

They come in messages from the rank (lab/collectives/recorder.py writes them), and a rank runs untrusted code:
each is checked item by item, and what is kept is bounded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

MESSAGE_LIMIT = 1 << 20  # bytes of one message
KEPT = 2000  # collectives of one rank, and messages
MAX_LEFT = 200  # functions of one rank of which it is known where they were left
_MAX_NUMBER = 1 << 63
_MAX_TEXT, _MAX_PARTS = 1000, 64  # characters of a name; sizes, dimensions, types, frames

T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """One line of a stack: `text` is the source, stripped, or empty where it is not known."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Collective:
    """One collective that a rank has issued.

    `group` names the process group ("0" is the default one); `number` counts from 1 within it; `name` is what
    the backend was told to do; `sizes` are the shapes of its inputs and `types` their element types ("Float");
    `done` tells whether it has come to its end; `frames` run from the outermost to the innermost.
    """

    group: str
    number: int
    name: str
    sizes: tuple[tuple[int, ...], ...]
    done: bool
    frames: tuple[Frame, ...]
    types: tuple[str, ...] = ()

    @property
    def elements(self) -> str:
        """ "[3, 4]" or "[3], [5]"; "no tensor" for a barrier."""
        return ", ".join(str(list(size)) for size in self.sizes) or "no tensor"


@dataclass(frozen=True)
class Message:
    """A message that a rank has begun to send to one rank, or to receive from it.

    `nth` counts those of its kind with the same peer, tag and group: it meets the nth of the other side. `waiting`
    tells that the rank is in its wait(), at `waits_at`; `done` that it has come back from there.
    """

    kind: str  # "send" or "recv"
    group: str
    peer: int  # -1: from any rank
    tag: int
    nth: int
    elements: int
    type: str  # "float32"
    waiting: bool
    done: bool
    frames: tuple[Frame, ...]
    waits_at: tuple[Frame, ...]

    def meets(self, other: Message, rank: int) -> bool:
        """Whether it is the other side of a message that `rank` has begun."""
        same = (self.group, self.tag, self.nth) == (other.group, other.tag, other.nth)
        return same and self.peer == rank and self.kind != other.kind


class Lane:
    """What one rank has issued so far, in order: put together from its messages."""

    def __init__(self) -> None:
        self._known: dict[int, Collective] = {}  # by the rank's own running number
        self._one_to_one: dict[int, Message] = {}  # by the rank's own running number
        self.in_wait = False  # it waits for a collective
        self.left: dict[tuple[str, str], Frame] = {}  # (file, function) -> the line at which it was last left
        self.messages = 0
        self.final = False  # the rank has ended, and this is all

    @property
    def collectives(self) -> list[Collective]:
        return list(self._known.values())

    @property
    def one_to_one(self) -> list[Message]:
        return list(self._one_to_one.values())

    def feed(self, message: object) -> None:
        """Take one message. Raises ValueError for anything that recorder.py would not have sent."""
        content = _typed(message, dict)
        files = [_typed(file, str) for file in _typed(content.get("files"), list)]
        for record in _typed(content.get("new"), list):
            if len(_typed(record, list)) != 8:
                raise ValueError(f"a record of {len(record)} fields")
            identity, *fields = record
            self._known[_number(identity)] = _collective(files, *fields)
        for identity in _typed(content.get("done"), list):
            if (known := self._known.get(_number(identity))) is not None:
                self._known[identity] = dataclasses.replace(known, done=True)
        for record in _typed(content.get("one_to_one", []), list):
            if len(_typed(record, list)) != 12:
                raise ValueError(f"a message of {len(record)} fields")
            self._one_to_one[_number(record[0])] = _message(files, *record[1:])
        for known_ones in (self._known, self._one_to_one):
            while len(known_ones) > KEPT:
                del known_ones[next(iter(known_ones))]
        self.in_wait = _typed(content.get("waits", self.in_wait), bool)
        for departure in _typed(content.get("left", []), list)[:MAX_LEFT]:
            if len(_typed(departure, list)) != 3:
                raise ValueError("a departure of something else")
            file, line, function = departure
            frame = Frame(_typed(file, str), _number(line), _typed(function, str), "")
            self.left[frame.file, frame.function] = frame
        while len(self.left) > MAX_LEFT:
            del self.left[next(iter(self.left))]
        self.final = self.final or _typed(content.get("final"), bool)
        self.messages += 1


def _collective(
    files: list[str], group: Any, number: Any, name: Any, sizes: Any, types: Any, done: Any, frames: Any
) -> Collective:
    return Collective(
        group=_typed(group, str),
        number=_number(number),
        name=_typed(name, str),
        sizes=tuple(tuple(_number(n) for n in _few(size)) for size in _few(sizes)),
        done=_typed(done, bool),
        frames=tuple(_frame(files, *_typed(frame, list)) for frame in _few(frames)),
        types=tuple(_typed(kind, str) for kind in _few(types)),
    )


def _message(
    files: list[str],
    kind: Any,
    group: Any,
    peer: Any,
    tag: Any,
    nth: Any,
    elements: Any,
    dtype: Any,
    waiting: Any,
    done: Any,
    frames: Any,
    waits_at: Any,
) -> Message:
    if kind not in ("send", "recv"):
        raise ValueError("a message that is neither sent nor received")
    return Message(
        kind=kind,
        group=_typed(group, str),
        peer=peer if type(peer) is int and peer == -1 else _number(peer),
        tag=_number(tag),
        nth=_number(nth),
        elements=_number(elements),
        type=_typed(dtype, str),
        waiting=_typed(waiting, bool),
        done=_typed(done, bool),
        frames=tuple(_frame(files, *_typed(frame, list)) for frame in _few(frames)),
        waits_at=tuple(_frame(files, *_typed(frame, list)) for frame in _few(waits_at)),
    )


def _frame(files: list[str], *fields: Any) -> Frame:
    if len(fields) != 3 or not _number(fields[0]) < len(files):
        raise ValueError("a frame of something else")
    return Frame(files[fields[0]], _number(fields[1]), _typed(fields[2], str), "")


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} in place of a {kind.__name__}")
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        raise ValueError(f"a text of {len(value)} characters")
    return value


def _few(value: Any) -> list[Any]:
    if len(_typed(value, list)) > _MAX_PARTS:
        raise ValueError(f"a list of {len(value)} parts")
    return list(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise ValueError(f"{str(value)[:40]!r} is no number of anything")
    return value
