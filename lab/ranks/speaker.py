"""Inside a rank: the thread that tells the leader of the group which collectives the rank has issued.

It begins after half a second, so that most groups have ended before, and then speaks up every quarter of a second,
whether there is news or not: a rank that has said twice that it waits in a collective does wait.
"""

from __future__ import annotations

import os
import socket
import threading
import time

from lab.collectives import conduct
from lab.collectives.recorder import Recorder
from lab.ranks import platform, wire

# Frames from a rank with what recorder.py has to say, and to a rank that has ended: say it now.
RECORDS, TELL = b"C", b"T"
CONDUCT = b"N"  # what conduct.py has noted

DELAY = 0.5  # seconds from the start of the rank
PERIOD = 0.25  # seconds
_SHARE = 20  # of the rank's time, one part in this many is spent on records at most
_LAST_WORDS = 2.0  # seconds at most


class Speaker:
    """Owns the writing end of a rank's channel: all that the rank sends goes through `send` or `end`."""

    def __init__(self, channel: socket.socket, recorder: Recorder) -> None:
        self._channel = channel
        self._recorder = recorder
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pid = os.getpid()

    def start(self) -> None:
        threading.Thread(target=self._run, name="lab-speaker", daemon=True).start()
        platform.before_terminate(self._last_words)

    def send(self, frame: bytes) -> None:
        with self._lock:
            self._channel.sendall(frame)

    def end(self, frame: bytes, *, with_records: bool) -> None:
        """Send the frame that ends the rank, after the last records if they will be wanted for certain."""
        self._stop.set()
        with self._lock:
            if with_records:
                self._send_records(final=True)
            self._channel.sendall(frame)

    def tell(self) -> None:
        """Send the last records of a rank that has ended."""
        with self._lock:
            self._send_records(final=True)

    def _run(self) -> None:
        pause = DELAY
        while not self._stop.wait(pause):
            begin = time.monotonic()
            with self._lock:
                if self._stop.is_set():
                    return
                try:
                    self._send_conduct()
                    self._send_records(final=False)
                except OSError:  # the leader is gone, and this process with it
                    return
            pause = max(PERIOD, _SHARE * (time.monotonic() - begin))

    def _send_conduct(self) -> None:
        self._channel.sendall(wire.frame(CONDUCT, wire.encode(conduct.notes())))

    def _send_records(self, *, final: bool) -> None:
        for message in self._recorder.news(final=final):
            self._channel.sendall(wire.frame(RECORDS, wire.encode(message)))

    def _last_words(self) -> None:
        """In any thread of a process about to end: gloo ends it when tensors of different sizes meet."""
        if os.getpid() == self._pid and self._lock.acquire(timeout=_LAST_WORDS):
            try:
                self._send_conduct()
                self._send_records(final=True)
            finally:
                self._lock.release()
