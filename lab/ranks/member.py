"""One rank as the leader of its group sees it: what it sent, what it printed, where it stands."""

from __future__ import annotations

import os
import re
import socket
import stat
from collections import deque
from typing import Any

from lab.base.source import searchable
from lab.collectives import lanes
from lab.ranks import rank, speaker, wire

OUTPUT_END = 32 << 10  # bytes kept of the beginning and of the end of a rank's output
_STACK_LIMIT = 64 << 10  # bytes
_SOURCE_LIMIT = 1 << 20  # bytes of a file that a line is quoted from
_RECORDS_LIMIT = 4 << 20  # bytes of a rank's records that are handed on
_TAMPERED_LIMIT = 400  # bytes
_CONDUCT_LIMIT = 1 << 18  # bytes; what is cut off here cannot be read any more
_CHUNK = 1 << 16  # bytes
_STACK_LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class BoundedOutput:
    """Keeps the first and the last `OUTPUT_END` bytes of a stream."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = OUTPUT_END - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (excess := len(self._tail) - OUTPUT_END) > 0:
            del self._tail[:excess]
            self._dropped += excess

    def text(self) -> str:
        """Return it as text, with a line in place of what was dropped; invalid bytes become U+FFFD."""
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        gap = f"\n[... {self._dropped} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + gap + self._tail.decode("utf-8", "replace")


class Member:
    """A rank's process, its channel and pipes, and what became of it; `status` is empty while it runs."""

    def __init__(self, number: int, pid: int, channel: socket.socket, output: int, stack: int) -> None:
        self.number = number
        self.pid = pid
        self.channel = channel
        self.reader = wire.FrameReader()
        self.wants_inputs = False
        self.has_inputs = False  # sent once only: a rank that asks on and on must not fill our memory
        self.unsent = memoryview(b"")
        self.output_pipe = output
        self._output = BoundedOutput()
        self.stack_pipe = stack
        self._stack = b""
        self.lane = lanes.Lane()
        self._records: deque[bytes] = deque()
        self._asked = False
        self.remarks: dict[bytes, bytes] = {}  # BEGUN, TAMPERED and CONDUCT
        self.status = ""
        self.at_rest = False  # it has sent its result, or why there is none, and waits for the end of the group
        self.note = ""
        self.exit_code: int | None = None
        self.payload = b""
        self.seconds = 0.0

    @property
    def failed(self) -> bool:
        """Whether it has ended without a result."""
        return self.status not in ("", "ok")

    @property
    def stack_complete(self) -> bool:
        """Whether the whole stack has arrived: down to the outermost frame, or cut at 100 frames."""
        return b" in _run_module_as_main" in self._stack or b"\n  ...\n" in self._stack

    def read_output(self) -> bool:
        """Take what is in the pipe of its output; return False when every writer has closed it."""
        data = _read(self.output_pipe)
        self._output.add(data or b"")
        return data != b""

    def read_stack(self) -> bool:
        """Take what is in the pipe of its stack; return False when every writer has closed it."""
        data = _read(self.stack_pipe)
        self._stack = (self._stack + (data or b""))[:_STACK_LIMIT]
        return data != b""

    def take_records(self, payload: bytes) -> None:
        """Take a message about the collectives it has issued. Raises WireError if it is none."""
        try:
            if len(payload) > lanes.MESSAGE_LIMIT:
                raise ValueError(f"{len(payload)} bytes")
            message = wire.decode(payload)
            self.lane.feed(message)
        except ValueError as error:
            raise wire.WireError(f"no record of collectives: {error}") from None
        if any(message.get(news) for news in ("new", "done", "final", "left", "one_to_one")) or "waits" in message:
            self._records.append(payload)
        while sum(map(len, self._records)) > _RECORDS_LIMIT:
            self._records.popleft()

    def ask_for_records(self) -> bool:
        """Have it tell its last records if it is at rest; whether there is something to wait for."""
        if self.lane.final or not self.at_rest or (self.unsent and not self._asked):
            return False
        if not self._asked:
            self._asked = True
            self.unsent = memoryview(wire.frame(speaker.TELL))
            self.send_unsent()
        return True

    def read_rest(self) -> None:
        """After everything has been killed: take what is still in the pipe of its output."""
        for _ in range(64):  # bounded, because a writer may survive where there is no subreaper
            data = _read(self.output_pipe)
            if not data:
                return
            self._output.add(data)

    def send_unsent(self) -> None:
        """Send as much of `unsent` as the channel takes now."""
        try:
            self.unsent = self.unsent[self.channel.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # it has closed its end
            self.unsent = memoryview(b"")

    def report(self, *, with_records: bool) -> dict[str, Any]:
        """Return what the grader gets, as plain data."""
        return {
            "rank": self.number,
            "status": self.status,
            "begun": rank.BEGUN in self.remarks,
            "tampered": self.remarks.get(rank.TAMPERED, b"")[:_TAMPERED_LIMIT],
            "conduct": self.remarks.get(speaker.CONDUCT, b"")[:_CONDUCT_LIMIT],
            "note": self.note,
            "exit_code": self.exit_code,
            "payload": self.payload,
            "seconds": self.seconds,
            "output": self._output.text(),
            "stack": _frames(self._stack),
            "records": list(self._records) if with_records else [],
        }


def _read(pipe: int) -> bytes | None:
    """Return what is in a pipe, b"" at its end and None when it is empty for now."""
    try:
        return os.read(pipe, _CHUNK)
    except BlockingIOError:
        return None


def _frames(text: bytes) -> list[list[Any]]:
    """Return the frames in faulthandler's text as [file, line, function, source], outermost first.

    Those above the observe function are the harness's own and are left out.
    """
    frames: list[list[Any]] = []
    for line in text.decode("utf-8", "replace").splitlines():
        if match := _STACK_LINE.fullmatch(searchable(line)):
            file, number, function = match.groups()
            frames.insert(0, [file, int(number), function, _source_line(file, int(number))])
    entry = [i for i, (file, _, name, _) in enumerate(frames) if file == rank.__file__ and name == "_observe"]
    return frames[entry[0] + 1 :] if entry else frames


def _source_line(file: str, number: int) -> str:
    try:
        info = os.stat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _SOURCE_LIMIT:  # a stack may name any file
            return ""
        with open(file, encoding="utf-8", errors="replace") as source:
            return next((line.strip() for i, line in enumerate(source, 1) if i == number), "")[:500]
    except (OSError, ValueError):
        return ""
