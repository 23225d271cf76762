"""Files written whole or not at all, and the choice of the process that goes first."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import data_observers
import pytest
from image_helpers import open_folder

from lab.base.errors import UserError
from lab.base.files import atomic_write, write_whole
from lab.course import store
from lab.ranks.server import server
from lab.runs.records import folder
from lab.runs.records.job import mark
from lab.student import state as student_state
from lab.sweep.collect.collect import Collection
from lab.sweep.collect.collect import _write as write_results
from lab.syllabus import package
from lab.training.checkpoints import checkpoint_file


def first_ranks(folders: list[Path], **inputs: object) -> tuple[list[int], list[list[str] | None]]:
    """The ranks that go first, and what each rank's folder holds afterwards."""
    inputs = {"folders": [str(folder) for folder in folders], **inputs}
    values = server().run(data_observers.who_is_first, len(folders), code=None, inputs=inputs).values
    return [rank for rank, value in enumerate(values) if value["first"]], [value["left"] for value in values]


def test_one_rank_goes_first_in_a_shared_folder(tmp_path):
    assert first_ranks([tmp_path] * 3) == ([0], [[]] * 3)


def test_one_rank_of_each_folder_goes_first(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert first_ranks([one, two, one, two]) == ([0, 1], [[]] * 4)
    assert first_ranks([two, one, one]) == ([0, 1], [[]] * 3)


def test_a_folder_that_is_not_there_is_on_the_file_system_of_its_parent(tmp_path):
    missing = tmp_path / "not" / "yet"
    assert first_ranks([missing, missing]) == ([0], [None, None])
    assert list(tmp_path.iterdir()) == [], "nothing is created for a folder that may be a typing error"


def test_files_of_another_job_do_not_count(tmp_path):
    (tmp_path / ".first-0123456789abcdef-0").touch()
    firsts, left = first_ranks([tmp_path] * 2)
    assert (firsts, left[0]) == ([0], [".first-0123456789abcdef-0"])


@pytest.mark.parametrize(
    ("mode", "below"),
    [(0o555, ""), (0o000, ""), (0o000, "data")],
    ids=["read-only", "closed", "below one that is closed"],
)
def test_where_nobody_may_write_one_rank_of_the_host_goes_first(mode, below):
    with open_folder() as folder:
        data = folder / below
        data.mkdir(exist_ok=True)
        folder.chmod(mode)
        helpers = str(Path(__file__).parents[1] / "helpers")
        firsts, left = first_ranks([data] * 3, bound=True, helpers=helpers)
        folder.chmod(0o755)
    assert (firsts, left[0]) == ([0], [])


def test_atomic_write_makes_the_folder_and_replaces_the_file(tmp_path):
    path = tmp_path / "new" / "file"
    for content in (b"one", b"two"):
        with atomic_write(path) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"one", "not before the block has ended"
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_atomic_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as file:
            file.write(b"half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_in_mid_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = f"""
import os, signal
from pathlib import Path
from lab.base.files import atomic_write
with atomic_write(Path({str(path)!r})) as file:
    file.write(b"half" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_other_users_may_read_what_was_written(tmp_path):
    before = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.fixture
def full_disk():
    """A disk that takes 4 KiB of each file from now on: what a limit of the kernel's does, without being root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save_state(path: Path) -> None:
    if not student_state.write_state(path.parents[1], path.name, LONG):
        raise OSError("write_state() says so")


LONG = "x" * 100_000
WRITERS = {
    "status.json": lambda path: mark(path.parent, "failed", LONG, started="", ended=""),
    "run.csv": lambda path: folder._write_table(path, ("run_id",), [{"run_id": LONG}]),
    "results.csv": lambda path: write_results(Collection(path, [{"run_id": LONG}])),
    "latest.pth": lambda path: checkpoint_file.write({"format": 1, "model": LONG}, path),
    "marks.csv": lambda path: store.write(path, LONG),
    "data.py": lambda path: package._write(path.parent, path.name, LONG),
    ".lab/progress.json": save_state,
    "whole": lambda path: write_whole(path, LONG),
    "whole, alone": lambda path: write_whole(path, LONG.encode(), alone=True),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_keeps_the_old_file_and_no_half_of_the_new_one(tmp_path, full_disk, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises((OSError, UserError)):
        WRITERS[name](path)
    assert path.read_text() == "{}"
    left = {file.name for file in path.parent.iterdir()} - {".lab"}  # a reset's backup
    assert left == {path.name}


def test_a_file_has_the_mode_that_its_writer_wants(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "plain", "")
        write_whole(tmp_path / "open", "", mode=0o664)
        write_whole(tmp_path / "closed", "", mode=0o600)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"plain": 0o640, "open": 0o664, "closed": 0o600}


def test_what_a_killed_process_left_goes_with_the_next_one_that_writes_alone(tmp_path):
    (tmp_path / ".file.tmp").write_bytes(b"half")
    write_whole(tmp_path / "file", "whole", alone=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "whole")]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "elsewhere").write_text("old")
    (tmp_path / "file").symlink_to("elsewhere")
    write_whole(tmp_path / "file", "new\r\n")
    assert (tmp_path / "elsewhere").read_text() == "old"
    assert (tmp_path / "file").read_bytes() == b"new\r\n"
    assert not (tmp_path / "file").is_symlink()


def test_a_folder_that_is_gone_is_not_made_again(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "gone" / "file", "")
    assert list(tmp_path.iterdir()) == []
