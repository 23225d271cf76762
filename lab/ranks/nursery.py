"""The process from which rank groups are forked, with torch already loaded.

    python -m lab.ranks.nursery FD LIMITS MODULE...

FD is its socket, or its socket and others to hold, "5,6"; LIMITS is empty, or the sandbox's that it is started in.

It speaks over one inherited socket and needs no path and no port. Each order is 9 bytes: `R` and a number, with
the socket of a new group as ancillary data, or `K` and the number of a group to end. It ends, and everything
below it, when the other end of the socket is closed, however that came about.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from lab.base import intact
from lab.base.startup import no_collections
from lab.ranks import confine, leader, platform, wire

ORDER = struct.Struct(">cQ")
START, KILL = b"R", b"K"


def main(arguments: Sequence[str]) -> NoReturn:
    """Serve orders on the socket that `arguments[0]` begins with, after importing `arguments[2:]`."""
    fds = [int(number) for number in arguments[0].split(",")]
    control = socket.socket(fileno=fds[0])
    platform.close_other_fds(fds)
    platform.adopt_orphans()
    platform.no_core_dumps()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    with no_collections():
        _preload(arguments[2:])
        intact.settle()
        gc.freeze()  # a collection in a rank shall not touch, and so copy, the shared pages
    limits = arguments[1]
    confinement = confine.Confinement(confine.Limits.from_text(limits)) if limits else None
    confine.hide_memory(True)
    Nursery(control, confinement).serve()
    os._exit(0)


def _preload(names: Sequence[str]) -> None:
    # torch._dynamo makes its cache folder in /tmp when it is imported: it is shown one that exists.
    own = os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/") == "/"
    for name in names:
        importlib.import_module(name)
    if own:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    if "torch._dynamo" in sys.modules:
        _begin_distributed()


def _begin_distributed() -> None:
    """What init_process_group() does first in each process, 25 ms long: here it does it once for all ranks."""
    import torch.distributed
    from torch._dynamo import trace_rules

    torch.distributed.is_backend_available("cpu:gloo")  # looks for gloo in all packages that are installed
    trace_rules.clear_lru_cache()  # of 3,000 functions


class Nursery:
    """The loop: fork a leader for each order, clear up behind leaders that have ended."""

    def __init__(self, control: socket.socket, confinement: confine.Confinement | None = None) -> None:
        self._control = control
        self._confinement = confinement
        self._pids: dict[int, int] = {}  # of leaders, by number of the group
        # Held until nothing of the group is left: its grader sees the socket closed only then.
        self._sockets: dict[int, socket.socket] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self) -> None:
        """Return when the grader has closed its end; nothing is left below this process then."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(confine.PERIOD if self._confinement and self._pids else None):
                if key.fileobj is self._control and not self._obey():
                    platform.kill_descendants(self._pids.values())
                    return
                if key.fileobj == self._wake_read:
                    os.read(self._wake_read, 4096)
                    self._clear_up()
            if self._confinement and self._pids and self._confinement.exceeded():
                self._confinement.kill_all_but(self._pids.values())

    def _obey(self) -> bool:
        order, fds, _, _ = socket.recv_fds(self._control, ORDER.size, 1)
        if len(order) < ORDER.size:
            return False
        kind, number = ORDER.unpack(order)
        if kind == START:
            group = socket.socket(fileno=fds[0])
            if self._confinement:  # there is one group at a time: the last one is over, even if it goes on
                self._clear_up(all_groups=True)
            try:
                pid = os.fork()
            except OSError as error:  # no more processes allowed
                with contextlib.suppress(OSError):
                    group.sendall(wire.frame(leader.BROKEN, wire.encode(f"fork: {error.strerror}")))
                group.close()
                return True
            if pid == 0:
                _lead(group)
            self._pids[number] = pid
            self._sockets[number] = group
        elif kind == KILL and number in self._pids:
            os.kill(self._pids[number], signal.SIGKILL)
        return True

    def _clear_up(self, *, all_groups: bool = False) -> None:
        platform.kill_stopped(self._pids.values())  # nobody but a rank stops its leader
        ended = [number for number, pid in self._pids.items() if all_groups or platform.reap(pid)]
        for number in ended:
            del self._pids[number]
        if not self._confinement:
            platform.kill_descendants(keep=set(self._pids.values()))  # what a leader that was killed has left
        elif not self._pids:
            self._confinement.clear()
        for number in ended:
            self._sockets.pop(number).close()


def _lead(group: socket.socket) -> NoReturn:
    try:
        platform.close_other_fds({group.fileno()})
        leader.lead(group)
    except BaseException:  # noqa: BLE001  (nothing may unwind into the nursery's loop)
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
