"""The nursery as the grader sees it: a process that is started, in a sandbox or not, spoken to, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from lab.base import user_ids
from lab.base.paths import ROOT
from lab.ranks import nursery, platform
from lab.ranks.environment import clean_environment
from lab.ranks.sandbox import Sandbox, SandboxError, environment

_PATIENCE = 15.0  # seconds to end by itself


class NurseryProcess:
    """A process that runs lab/ranks/nursery.py; `control` is the socket that its orders go through."""

    def __init__(self, preload: Sequence[str], sandbox: Sandbox | None) -> None:
        self._sandbox = sandbox
        self._errors = platform.anonymous_file()
        self.control, theirs = socket.socketpair()
        limits, env = "", clean_environment()
        with ExitStack() as held:
            fds = [held.enter_context(theirs).fileno()]
            if sandbox:
                if os.geteuid() == 0:
                    user = _user()
                    fds.append(held.enter_context(user.socket).fileno())
                    sandbox = replace(sandbox, limits=replace(sandbox.limits, user=user.number))
                limits, env = sandbox.limits.to_text(), environment(env)
            numbers = ",".join(map(str, fds))
            command = [sys.executable, "-m", "lab.ranks.nursery", numbers, limits, *preload]
            options: dict[str, Any] = {
                "cwd": ROOT,
                "env": env,
                "stdin": subprocess.DEVNULL,
                "stdout": self._errors,
                "stderr": self._errors,
                "pass_fds": fds,
                "start_new_session": True,  # so that Ctrl-C in a terminal is ours to handle
            }
            start = sandbox.popen if sandbox else subprocess.Popen
            self._process: subprocess.Popen[bytes] = start(command, **options)
        self.pid = self._process.pid
        self.poll, self.wait = self._process.poll, self._process.wait

    def order(self, kind: bytes, number: int, *sockets: socket.socket) -> None:
        """Send an order of nursery.py. Raises OSError when it has ended."""
        fds = [sock.fileno() for sock in sockets]
        socket.send_fds(self.control, [nursery.ORDER.pack(kind, number)], fds)

    def kill(self) -> None:
        """End it at once, and what there is in a sandbox; outside of one its groups end by themselves."""
        for pid in platform.children(self.pid) if self._sandbox else ():  # bubblewrap's child
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()

    def end(self, *, at_once: bool) -> None:
        """Close the control socket, at which it ends all groups and itself, and wait for that."""
        self.control.close()
        if at_once:
            self.kill()
        try:
            self.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        self._errors.close()

    def said(self) -> str:
        """The end of what it has written: why it could not start."""
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode("utf-8", "replace").strip()


def _user() -> user_ids.UserId:
    """A user of its own for a sandbox, which holds it by itself: it is free when the sandbox has ended."""
    try:
        return user_ids.take()
    except OSError as error:
        raise SandboxError(str(error)) from error
