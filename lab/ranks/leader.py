"""The parent of one group of ranks: forks them, hosts their rendezvous, watches them and ends them.

It trusts nothing that a rank sends: it looks at the kind and the length of a frame only and hands the payload
on to the grader, which decodes it without unpickling anything. Only what ranks say about their collectives it
decodes itself (lab/collectives/lanes.py, of bounded size), to end the group when it is in a deadlock.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from lab.collectives.deadlock import Detector
from lab.ranks import confine, platform, rank, rendezvous, speaker, wire
from lab.ranks.member import Member

# Frames between the grader and the leader; besides these, INPUTS of rank.py.
REQUEST, STARTED, REPORT, BROKEN = b"Q", b"S", b"P", b"B"

GRACE = 1.0  # seconds that the others get when one rank has failed
_STACK_PATIENCE = 2.0  # seconds at most to wait for the stacks of ranks that are about to be killed
_NO_LIMIT = 1 << 62  # bytes; for frames from the grader, which is trusted
_RECORDS_PATIENCE = 1.0  # seconds at most to wait for the records of ranks that have ended
_READS_AFTER_EXIT = 1000


class Group:
    """The ranks of one request, from the fork to the last kill."""

    def __init__(self, grader: socket.socket, request: dict[str, Any]) -> None:
        self._grader = grader
        self._grader_reader = wire.FrameReader(limit=_NO_LIMIT)
        self._grader_is_gone = False
        self._request = request
        self._inputs: bytes | None = None
        self._selector = selectors.DefaultSelector()
        self.members: list[Member] = []

    def start(self) -> None:
        """Fork the ranks, host the rendezvous and tell each rank where it is."""
        if self._request["files"] is not None:
            confine.unpack(Path(self._request["code"]), self._request["files"])
        for number in range(self._request["world_size"]):
            self.members.append(self._fork(number))
        # After the forks, for the store brings threads, and a process with threads should not fork.
        self._store, port = rendezvous.host()
        self._detector = Detector({member.number: member.lane for member in self.members})
        self._watch_for_exits()
        self._watch(self._grader, self._read_grader)
        self._begin = time.monotonic()
        for member in self.members:
            member.channel.sendall(wire.frame(rank.GO, wire.encode(port)))
            member.channel.setblocking(False)
            self._watch(member.channel, partial(self._read_channel, member))
            self._watch_pipe(member.output_pipe, member.read_output)
            self._watch_pipe(member.stack_pipe, member.read_stack)

    def watch(self) -> None:
        """Return when every rank has ended, or its time is up, or the grader is gone."""
        deadline = self._begin + self._request["timeout"]
        grace_end = float("inf")
        while self._running and not self._grader_is_gone:
            if grace_end == float("inf") and any(member.failed for member in self.members):
                grace_end = time.monotonic() + GRACE
            left = min(deadline, grace_end) - time.monotonic()
            if left <= 0:
                self._cut_off(timed_out=deadline <= grace_end)
            elif not any(member.failed for member in self.members) and self._in_deadlock():
                self._cut_off(timed_out=True, note="waited for a collective that another rank will never call")
            else:
                self._step(left)
        if any(member.failed for member in self.members):
            self._collect_records()

    def end(self) -> None:
        """Kill everything below this process and read what is left in the pipes."""
        platform.kill_descendants([member.pid for member in self.members])
        for member in self.members:
            member.read_rest()

    def reports(self) -> bytes:
        """One REPORT a rank, with the collectives it has issued if something failed, or all are asked for."""
        with_records = self._request["trace"] or any(member.failed for member in self.members)
        contents = [member.report(with_records=with_records) for member in self.members]
        return b"".join(wire.frame(REPORT, wire.encode(one, limit=2 * wire.MAX_PAYLOAD)) for one in contents)

    def _in_deadlock(self) -> bool:
        running = self._running
        if any(member.lane.messages for member in running):  # the others may be what they wait for
            for member in self.members:
                member.ask_for_records()
        return self._detector.deadlock([member.number for member in running])

    def _collect_records(self) -> None:
        """Wait a moment for the last records of ranks that have ended by themselves: they tell what failed."""
        end = time.monotonic() + _RECORDS_PATIENCE
        while sum(member.ask_for_records() for member in self.members) and time.monotonic() < end:
            self._step(end - time.monotonic())

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
            try:
                platform.die_with_parent(leader)
                rank.run_rank(number, self._request, theirs, output_write, stack_write)
            except BaseException:  # noqa: BLE001  (nothing may unwind into the leader's code)
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        os.close(output_write)
        os.close(stack_write)
        return Member(number, pid, ours, output_read, stack_read)

    def _cut_off(self, *, timed_out: bool, note: str = "") -> None:
        """Give the ranks that still run their status, and ask each where it stands."""
        failed = [member for member in self.members if member.failed]
        cut_off = self._running
        for member in cut_off:
            member.seconds = time.monotonic() - self._begin
            if timed_out:
                member.status = "timeout"
                member.note = note or f"did not finish within {self._request['timeout']:g} s"
            else:
                first = min(failed, key=lambda member: (member.status == "raised", member.seconds))
                member.status = "killed"
                member.note = f"stopped {GRACE:g} s after rank {first.number} failed"
            os.kill(member.pid, platform.STACK_SIGNAL)  # its zombie is still ours if it has just ended
        end = time.monotonic() + _STACK_PATIENCE
        while not all(member.stack_complete for member in cut_off) and time.monotonic() < end:
            self._step(end - time.monotonic())

    # Events

    def _watch(self, source: socket.socket | int, handler: Callable[[], object]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handler)

    def _unwatch(self, source: socket.socket | int) -> None:
        if source in self._selector.get_map():
            self._selector.unregister(source)

    def _watch_pipe(self, pipe: int, read: Callable[[], bool]) -> None:
        def handler() -> None:
            if not read():
                self._selector.unregister(pipe)

        os.set_blocking(pipe, False)
        self._watch(pipe, handler)

    def _watch_for_exits(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        os.write(wake_write, b"\0")  # look once: one may have ended already

        def handler() -> None:
            os.read(wake_read, 4096)
            self._collect_exits()

        self._watch(wake_read, handler)

    def _step(self, timeout: float) -> None:
        for key, events in self._selector.select(max(0.0, timeout)):
            if events & selectors.EVENT_READ:
                key.data()
            if events & selectors.EVENT_WRITE:
                for member in self._running:
                    self._send_inputs(member)

    def _read_channel(self, member: Member) -> bool:
        """Take what a rank has sent; tell whether there was anything."""
        try:
            data = member.channel.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._unwatch(member.channel)
            member.at_rest = False
            if not member.status:
                member.note = "closed the lab's own channel"
            return False
        try:
            for kind, payload in member.reader.feed(data):
                if kind == speaker.RECORDS:
                    member.take_records(payload)
                elif not member.status:
                    self._take(member, kind, payload)
        except wire.WireError as error:
            self._unwatch(member.channel)
            member.at_rest = False
            if not member.status:
                self._finish(member, "exited", note=f"{wire.GARBAGE}: {error}")
        return True

    def _take(self, member: Member, kind: bytes, payload: bytes) -> None:
        if kind in (rank.BEGUN, rank.TAMPERED, speaker.CONDUCT):
            member.remarks[kind] = payload
        elif kind == rank.ASK:
            member.wants_inputs = True
            self._send_inputs(member)
        elif kind == rank.RESULT:
            self._finish(member, "ok", payload, exit_code=0)
            member.at_rest = True
        elif kind in (rank.RAISED, rank.EXITED):
            self._finish(member, "raised" if kind == rank.RAISED else "exited", payload)
            member.at_rest = True
        else:
            raise wire.WireError(f"no message is of kind {kind!r}")

    def _finish(
        self, member: Member, status: str, payload: bytes = b"", *, exit_code: int | None = None, note: str = ""
    ) -> None:
        member.status, member.payload, member.exit_code, member.note = status, payload, exit_code, note
        member.seconds = time.monotonic() - self._begin

    def _send_inputs(self, member: Member) -> None:
        """Send the judge's inputs to a rank that has asked for them, as far as its socket takes them now."""
        if member.wants_inputs and not member.has_inputs and self._inputs is not None:
            member.has_inputs = True
            member.unsent = memoryview(wire.frame(rank.INPUTS, self._inputs))
        if member.unsent:
            member.send_unsent()
        if (key := self._selector.get_map().get(member.channel)) is not None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if member.unsent else 0)
            self._selector.modify(member.channel, events, key.data)

    def _read_grader(self) -> None:
        try:
            data = self._grader.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._grader_is_gone = True
            self._selector.unregister(self._grader)
        for kind, payload in self._grader_reader.feed(data):
            assert kind == rank.INPUTS, kind
            self._inputs = payload
            for member in self._running:
                self._send_inputs(member)

    def _collect_exits(self) -> None:
        """Reap what has ended, orphans too, and give a rank that ended without a word its status."""
        ended: dict[int, int] = {}
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            pass
        for member in self.members:
            if member.pid not in ended or member.status:
                continue
            for _ in range(_READS_AFTER_EXIT):  # what it sent before it ended
                if member.status or not self._read_channel(member):
                    break
            if not member.status:
                code = ended[member.pid]
                self._finish(member, "killed" if code < 0 else "exited", exit_code=code, note=member.note)


def lead(grader: socket.socket) -> NoReturn:
    """Be the leader of the group that `grader` asks for, in a process just forked by the nursery."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    platform.adopt_orphans()
    kind, payload = wire.receive(grader, limit=_NO_LIMIT)
    assert kind == REQUEST, kind
    group = Group(grader, wire.decode(payload))
    broken = b""
    try:
        group.start()
        grader.sendall(wire.frame(STARTED))
        group.watch()
    except Exception as error:  # noqa: BLE001  (whatever it is, the ranks must end and the grader must hear)
        broken = wire.frame(BROKEN, wire.encode(f"{type(error).__name__}: {error}"))
    group.end()
    try:
        grader.sendall(broken or group.reports())
    except OSError:  # the grader is gone
        os._exit(1)
    os._exit(0)
