"""The parent of one group of ranks: forks them, hosts their rendezvous, watches them and ends them.

It trusts nothing that a rank sends: it looks at the kind and length of a frame only and hands the payload on to
the grader, which decodes it without unpickling anything.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import stat
import time
from collections.abc import Callable
from typing import Any, NoReturn

from lab.grading import platform, rank, wire

# Frames between the grader and the leader. INPUTS (of rank.py) goes the same way as REQUEST.
REQUEST, STARTED, REPORT, BROKEN = b"Q", b"S", b"P", b"B"

GRACE = 1.0  # seconds that the others get when one rank has failed
STACK_PATIENCE = 0.5  # seconds to wait for the stacks of ranks that are about to be killed
OUTPUT_END = 32 << 10  # bytes kept of the beginning and of the end of a rank's output
_STACK_LIMIT = 64 << 10
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
    """One rank as its leader sees it. `status` is empty while it runs."""

    def __init__(self, number: int, pid: int, channel: socket.socket, output: int, stack: int) -> None:
        self.number = number
        self.pid = pid
        self.channel = channel
        self.reader = wire.FrameReader()
        self.outgoing = b""
        self.wants_inputs = False
        self.output_pipe = output
        self.output = BoundedOutput()
        self.stack_pipe = stack
        self.stack_text = b""
        self.status = ""
        self.note = ""
        self.exit_code: int | None = None
        self.payload = b""
        self.seconds = 0.0

    @property
    def stack_complete(self) -> bool:
        # The outermost frame of every rank, or the mark of a stack cut at 100 frames.
        return b" in _run_module_as_main" in self.stack_text or b"\n  ...\n" in self.stack_text

    def report(self) -> dict[str, Any]:
        """Return what the grader gets, as plain data."""
        return {
            "rank": self.number,
            "status": self.status,
            "note": self.note,
            "exit_code": self.exit_code,
            "payload": self.payload,
            "seconds": self.seconds,
            "output": self.output.text(),
            "stack": _frames(self.stack_text),
        }


class Group:
    """The ranks of one request, from the fork to the last kill."""

    def __init__(self, grader: socket.socket, request: dict[str, Any]) -> None:
        self.grader = grader
        self.request = request
        self.inputs: bytes | None = None
        self.members: list[Member] = []
        self.grader_is_gone = False
        self._grader_reader = wire.FrameReader(limit=1 << 40)
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Fork the ranks, host the rendezvous and tell each rank where it is."""
        for number in range(self.request["world_size"]):
            self.members.append(self._fork(number))
        # After the forks: the store brings threads, and a process with threads should not fork.
        port = self._host_rendezvous()
        self.begin = time.monotonic()
        for member in self.members:
            member.channel.sendall(wire.frame(rank.GO, wire.encode(port)))
            member.channel.setblocking(False)
            os.set_blocking(member.output_pipe, False)
            os.set_blocking(member.stack_pipe, False)
            self._watch(member.channel, lambda m=member: self._read_channel(m))
            self._watch(member.output_pipe, lambda m=member: self._read_output(m))
            self._watch(member.stack_pipe, lambda m=member: self._read_stack(m))
        self._watch(self.grader, self._read_grader)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._watch(wake_read, lambda: self._reap(wake_read))
        self._collect_exits()

    def watch(self) -> None:
        """Return when every rank has ended, or its time is up, or the grader is gone."""
        deadline = self.begin + self.request["timeout"]
        grace_end = float("inf")
        while self._running and not self.grader_is_gone:
            now = time.monotonic()
            failed = [m for m in self.members if m.status not in ("", "ok")]
            if failed and grace_end == float("inf"):
                grace_end = now + GRACE
            if now >= min(deadline, grace_end):
                break
            self._step(min(deadline, grace_end) - now)
        self._ask_for_stacks()
        for member in self._running:
            member.seconds = time.monotonic() - self.begin
            if time.monotonic() >= deadline:
                member.status = "timeout"
                member.note = f"did not finish within {self.request['timeout']:g} s"
            else:
                member.status = "killed"
                first = min(
                    (m for m in self.members if m.status not in ("", "ok")), key=lambda m: m.seconds, default=None
                )
                member.note = f"stopped {GRACE:g} s after rank {first.number} failed" if first else "interrupted"

    def end(self) -> None:
        """Kill everything below this process and read what is left in the pipes."""
        platform.kill_descendants([member.pid for member in self.members])
        for member in self.members:
            self._read_output(member)

    @property
    def _running(self) -> list[Member]:
        return [member for member in self.members if not member.status]

    def _fork(self, number: int) -> Member:
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe()
        stack_read, stack_write = os.pipe()
        leader = os.getpid()
        pid = os.fork()
        if pid == 0:
            platform.die_with_parent(leader)
            rank.run_rank(number, self.request, theirs, output_write, stack_write)
        theirs.close()
        os.close(output_write)
        os.close(stack_write)
        return Member(number, pid, ours, output_read, stack_read)

    def _host_rendezvous(self) -> int:
        from torch.distributed import TCPStore

        with socket.socket() as listener:  # on loopback only: by itself the store listens on every interface
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            port: int = listener.getsockname()[1]
            self._store = TCPStore(
                "127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach()
            )
        return port

    def _watch(self, source: socket.socket | int, handler: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handler)

    def _unwatch(self, source: socket.socket | int) -> None:
        if self._selector.get_map().get(source) is not None:  # type: ignore[union-attr,unused-ignore]
            self._selector.unregister(source)

    def _step(self, timeout: float) -> None:
        for key, events in self._selector.select(max(0.0, timeout)):
            if events & selectors.EVENT_WRITE:
                self._send_inputs(next(m for m in self.members if m.channel is key.fileobj))
            if events & selectors.EVENT_READ:
                key.data()

    def _read_channel(self, member: Member) -> None:
        try:
            data = member.channel.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._unwatch(member.channel)
            return
        try:
            for kind, payload in member.reader.feed(data):
                self._take(member, kind, payload)
        except wire.WireError as error:
            self._finish(member, "exited", note=f"wrote something on the lab's own channel: {error}")

    def _take(self, member: Member, kind: bytes, payload: bytes) -> None:
        if member.status:
            return
        if kind == rank.ASK:
            member.wants_inputs = True
            self._send_inputs(member)
        elif kind == rank.RESULT:
            self._finish(member, "ok", payload, exit_code=0)
        elif kind == rank.RAISED:
            self._finish(member, "raised", payload)
        elif kind == rank.EXITED:
            self._finish(member, "exited", payload)
        else:
            raise wire.WireError(f"no message is of kind {kind!r}")

    def _finish(
        self, member: Member, status: str, payload: bytes = b"", *, exit_code: int | None = None, note: str = ""
    ) -> None:
        member.status, member.payload, member.exit_code, member.note = status, payload, exit_code, note
        member.seconds = time.monotonic() - self.begin
        self._unwatch(member.channel)

    def _send_inputs(self, member: Member) -> None:
        """Send the judge's inputs to a rank that has asked, once, as far as its socket takes them."""
        if member.wants_inputs and self.inputs is not None:
            member.wants_inputs = False
            member.outgoing = wire.frame(rank.INPUTS, self.inputs)
        try:
            sent = member.channel.send(member.outgoing) if member.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:  # it has ended
            member.outgoing = b""
            sent = 0
        member.outgoing = member.outgoing[sent:]
        if not member.status:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.outgoing else 0)
            key = self._selector.get_key(member.channel)
            self._selector.modify(member.channel, events, key.data)

    def _read_output(self, member: Member) -> None:
        try:
            data = os.read(member.output_pipe, 1 << 16)
        except BlockingIOError:
            return
        if data:
            member.output.add(data)
        else:
            self._unwatch(member.output_pipe)

    def _read_stack(self, member: Member) -> None:
        try:
            data = os.read(member.stack_pipe, 1 << 16)
        except BlockingIOError:
            return
        member.stack_text = (member.stack_text + data)[:_STACK_LIMIT]
        if not data:
            self._unwatch(member.stack_pipe)

    def _read_grader(self) -> None:
        data = self.grader.recv(1 << 18)
        if not data:
            self.grader_is_gone = True
            self._unwatch(self.grader)
            return
        for kind, payload in self._grader_reader.feed(data):
            assert kind == rank.INPUTS, kind
            self.inputs = payload
            for member in self.members:
                if member.wants_inputs:
                    self._send_inputs(member)

    def _reap(self, wake: int) -> None:
        os.read(wake, 4096)
        self._collect_exits()

    def _collect_exits(self) -> None:
        ended: dict[int, int] = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
        for member in self.members:
            if member.pid not in ended:
                continue
            if not member.status:
                self._read_channel(member)  # what it sent before it ended
            if not member.status:
                code = ended[member.pid]
                self._finish(member, "killed" if code < 0 else "exited", exit_code=code)

    def _ask_for_stacks(self) -> None:
        asked = [] if self.grader_is_gone else self._running
        for member in asked:
            os.kill(member.pid, platform.STACK_SIGNAL)
        end = time.monotonic() + STACK_PATIENCE
        while (left := end - time.monotonic()) > 0 and any(not (m.stack_complete or m.status) for m in asked):
            self._step(left)


def _frames(text: bytes) -> list[list[Any]]:
    """Return the frames of faulthandler's text as [file, line, function, source], outermost first."""
    frames: list[list[Any]] = []
    for line in text.decode("utf-8", "replace").splitlines():
        if match := _STACK_LINE.fullmatch(line):
            file, number, function = match.groups()
            frames.insert(0, [file, int(number), function, _source_line(file, int(number))])
    own = [i for i, frame in enumerate(frames) if frame[0] == rank.__file__ and frame[2] == "_observe"]
    return frames[own[0] + 1 :] if own else frames


def _source_line(file: str, number: int) -> str:
    try:
        info = os.stat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > 1 << 20:
            return ""
        with open(file, encoding="utf-8", errors="replace") as source:
            return next((line.strip() for i, line in enumerate(source, 1) if i == number), "")
    except OSError:
        return ""


def lead(grader: socket.socket) -> NoReturn:
    """Be the leader of the group that `grader` asks for, in a process just forked by the nursery."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    platform.adopt_orphans()
    kind, payload = wire.receive(grader, limit=1 << 30)
    assert kind == REQUEST, kind
    group = Group(grader, wire.decode(payload))
    try:
        group.start()
        grader.sendall(wire.frame(STARTED))
        group.watch()
    except Exception as error:  # noqa: BLE001  (the grader must hear of it)
        answer = wire.frame(BROKEN, wire.encode(f"{type(error).__name__}: {error}"))
    else:
        answer = b""
    group.end()
    try:
        grader.sendall(answer or b"".join(wire.frame(REPORT, wire.encode(m.report())) for m in group.members))
    except OSError:  # the grader is gone
        os._exit(1)
    os._exit(0)
