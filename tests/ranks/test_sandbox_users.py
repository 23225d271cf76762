"""One student's threads and processes take none from another, whoever runs the lab."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import attack_observers as observers
import pytest
from attack_helpers import in_answer, sandboxed, why_no_sandbox, write
from rank_helpers import wait_for

from lab.base import user_ids
from lab.ranks import platform
from lab.ranks.server import RankServer

NO_SANDBOX = why_no_sandbox()
pytestmark = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX)
needs_root = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root")

GREEDY = in_answer(
    """
    try:
        while True: threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    except RuntimeError: time.sleep(1e6)
    """
)
HONEST = in_answer(
    """
    for _ in range(40): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    return numbers
    """
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[RankServer, RankServer]]:
    with sandboxed() as one, sandboxed() as other:
        yield one, other


def inside(server: RankServer) -> list[Path]:
    """What runs in a server's sandbox: /proc/<pid>."""
    waiting, found = [server._nursery.pid], []
    while waiting:
        children = platform.children(waiting.pop())
        found += [Path("/proc", str(pid)) for pid in children]
        waiting += children
    return found


def threads(server: RankServer) -> int:
    return sum(len(list((process / "task").iterdir())) for process in inside(server) if process.exists())


def test_a_students_threads_take_none_from_another(both: tuple[RankServer, RankServer], tmp_path: Path) -> None:
    greedy, honest = both
    codes = [write(tmp_path / name, {"data.py": text}) for name, text in (("greedy", GREEDY), ("honest", HONEST))]
    given = {"numbers": [0]}
    for server in both:
        server.run(observers.surroundings, 1, code=None)
    thread = threading.Thread(
        target=greedy.run, args=(observers.answer, 1), kwargs={"code": codes[0], "inputs": given, "timeout": 60.0}
    )
    thread.start()
    try:
        wait_for(lambda: threads(greedy) > 80, "the greedy one's threads", 60)
        result = honest.run(observers.answer, 1, code=codes[1], inputs=given, timeout=60.0)
    finally:
        greedy.end_groups()
        thread.join()
    assert result.values == [{"sum": 0}]


@needs_root
def test_every_sandbox_has_a_user_of_its_own(both: tuple[RankServer, RankServer]) -> None:
    users = []
    for server in both:
        server.run(observers.surroundings, 1, code=None)
        # The nursery is the process below bubblewrap; it has long given up being root.
        (nursery,) = platform.children(server._nursery.pid)
        users.append(Path(f"/proc/{nursery}").stat().st_uid)
    assert users[0] != users[1]
    assert all(user in user_ids.RANGES[0] or user in user_ids.RANGES[1] for user in users)


@needs_root
def test_a_user_is_nobody_elses_until_the_sandbox_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    few = range(1_900_000_100, 1_900_000_102)
    monkeypatch.setattr(user_ids, "RANGES", (few,))
    monkeypatch.setattr(user_ids, "_TRIES", len(few))
    taken = [user_ids.take() for _ in few]
    assert {one.number for one in taken} == set(few)
    with pytest.raises(OSError, match="2 user ids for sandboxes were tried, and all are in use"):
        user_ids.take()
    program = "import sys; sys.stdin.read()"
    fd = taken[0].socket.fileno()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, pass_fds=[fd]) as process:
        taken[0].socket.close()
        with pytest.raises(OSError, match="all are in use"):  # another process holds it
            user_ids.take()
        process.kill()
    again = user_ids.take()
    assert again.number == taken[0].number
    for one in (again, taken[1]):
        one.socket.close()


def test_without_such_numbers_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "map").write_text("         0     100000      65536\n")
    monkeypatch.setattr(user_ids, "_MAP", tmp_path / "map")
    held = user_ids.take()
    assert held.number in user_ids.RANGES[1]
    held.socket.close()
    (tmp_path / "map").write_text("         0       1000          1\n")
    with pytest.raises(OSError, match="no user ids for sandboxes"):
        user_ids.take()
