"""Workers that die, hang or talk nonsense: every submission gets a record, and only its own marks are open."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from rank_helpers import living, wait_for

from lab.course import pool
from lab.course.marks import SubmissionRecord

# Stands in for lab/course/worker.py: what it does depends on the student's name.
WORKER = """
import json, os, sys, tempfile, time
print("noise on stderr", file=sys.stderr)
for line in sys.stdin:
    job = json.loads(line)
    name = job["student"]
    with open(os.path.join({log!r}, f"{{name}}-{{os.getpid()}}"), "w"): pass
    tempfile.mkdtemp(prefix="left-")
    if name.startswith("dies"): os._exit(9)
    if name.startswith("hangs"): time.sleep(1000)
    if name.startswith("nonsense"): print("{{", flush=True)
    if name == "once" and len([one for one in os.listdir({log!r}) if one.startswith("once-")]) == 1: os._exit(1)
    record = {{"student": name, "key": "k", "exercises": [], "notebooks": {{}}, "answers": {{}}, "remarks": []}}
    first = os.path.join({log!r}, name + "-first")
    if name.startswith("short") and not os.path.exists(first):
        open(first, "w").close()
        outcome = {{"title": "t", "outcome": "lab error", "detail": "fork: Resource temporarily unavailable"}}
        mark = {{"exercise": "1.1", "title": "t", "points": None, "of": 6, "outcome": outcome, "checks": []}}
        record["exercises"] = [mark]
    print(json.dumps(record | {{"deadline": job["deadline"], "seconds": 0.1, "lab": "x"}}), flush=True)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers leave a file for every submission that they were given: name-pid."""
    folder = tmp_path / "log"
    folder.mkdir()
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(log=str(folder)))
    monkeypatch.setattr(pool, "COMMAND", (sys.executable, str(script)))
    monkeypatch.setattr(pool, "GRACE", 2.0)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return folder


def grade(tmp_path: Path, *students: str, jobs: int = 2) -> dict[str, SubmissionRecord]:
    found: dict[str, SubmissionRecord] = {}
    work = [(name, tmp_path / name) for name in students]
    pool.grade_all(work, jobs=jobs, deadline=1.0, done=lambda record: found.update({record.student: record}))
    return found


def pids(log: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in log.iterdir()]


@pytest.mark.parametrize("trouble", ["dies", "hangs", "nonsense"])
def test_a_worker_in_trouble_costs_its_own_submission_only(tmp_path: Path, log: Path, trouble: str):
    students = ["a", trouble, "b", "c"]
    found = grade(tmp_path, *students)
    assert sorted(found) == sorted(students)
    for name in ("a", "b", "c"):
        assert found[name].to_look == []
    why = found[trouble].to_look[0]
    assert why.startswith("the lab could not check 1.1, 2.1")
    assert {mark.points for mark in found[trouble].exercises} == {None}
    assert "gave no marks" in found[trouble].exercises[0].outcome.detail
    wait_for(lambda: not living(pids(log)), "the end of the workers", 10)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_worker_that_dies_once_gives_the_marks_the_second_time(tmp_path: Path, log: Path):
    assert grade(tmp_path, "once", jobs=1)["once"].to_look == []


def test_one_that_the_machine_was_too_small_for_is_graded_again_alone(tmp_path: Path, log: Path):
    order: list[tuple[str, list[str]]] = []

    def done(record: SubmissionRecord) -> None:
        order.append((record.student, record.to_look))

    work = [(name, tmp_path / name) for name in ("short-1", "a", "b", "short-2", "c")]
    pool.grade_all(work, jobs=2, deadline=1.0, done=done)
    assert sorted(student for student, _ in order[:3]) == ["a", "b", "c"]
    assert sorted(order[3:]) == [("short-1", []), ("short-2", [])]


def test_a_submission_lost_for_want_of_file_descriptors_gets_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Neither a worker can be started nor the submission read; without a record the batch would wait for ever."""

    def no_descriptors(*args: object, **options: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(subprocess, "Popen", no_descriptors)
    monkeypatch.setattr(pool, "read_submission", no_descriptors)
    found: dict[str, SubmissionRecord] = {}
    batch = threading.Thread(target=lambda: found.update(grade(tmp_path, "alice")), daemon=True)
    batch.start()
    batch.join(60)
    assert {mark.points for mark in found["alice"].exercises} == {None}
    assert "Too many open files" in found["alice"].exercises[0].outcome.detail
    assert "could not be read: OSError" in found["alice"].unread


def test_a_batch_that_is_stopped_leaves_no_worker(tmp_path: Path, log: Path):
    def stop(record: SubmissionRecord) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    work = [(name, tmp_path / name) for name in ("a", "hangs-1", "hangs-2")]
    with pytest.raises(KeyboardInterrupt):
        pool.grade_all(work, jobs=2, deadline=600.0, done=stop)
    assert time.monotonic() - begin < 120
    wait_for(lambda: not living(pids(log)), "the end of the workers", 10)
    assert not list((tmp_path / "tmp").iterdir())
