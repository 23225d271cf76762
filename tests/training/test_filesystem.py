"""Files written whole or not at all, and the choice of the process that goes first."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import data_observers
import pytest
from image_helpers import open_folder

from lab.base.files import atomic_write
from lab.ranks.server import server


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
