"""nbgrader collect in a course of the lab's: what is made by hand in the exchange, and what a person must see."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeFactory
from traitlets.config import PyFileConfigLoader

from lab.course.build import CONFIG
from lab.course.collect import drop_links
from lab.course.config import config_text
from lab.course.folders import Notes, read_notes, write_notes
from lab.course.marks import SubmissionRecord
from lab.course.notebooks import STAND_IN
from lab.course.submissions import read_submission

ME = pwd.getpwuid(os.geteuid()).pw_name
OTHER = "daemon"  # a user of every Unix
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand in as several users")


class Exchange:
    """A course whose gradebook knows nothing yet, and its exchange."""

    def __init__(self, folder: Path) -> None:
        self.course = folder / "course"
        self.inbound = self.course / "exchange" / "scaling-lab" / "inbound"
        self.inbound.mkdir(parents=True)
        (self.course / CONFIG).write_text(config_text({}))

    def put(self, student: str, *, owner: str = "", ago: timedelta = timedelta(), claimed: str = "") -> Path:
        """What `nbgrader submit` makes; returns the folder."""
        stamp = claimed or f"{datetime.now(UTC) - ago:%Y-%m-%d %H:%M:%S.%f} UTC"
        place = self.inbound / f"{student}+lab+{stamp}+{os.urandom(4).hex()}"
        (place / "exercises").mkdir(parents=True)
        (place / "exercises" / "data.py").write_text(f"# of {owner or student}\n")
        (place / "1_model.ipynb").write_text("{}")
        (place / "timestamp.txt").write_text(stamp)
        if owner:
            for path in (place, *place.rglob("*")):
                os.chown(path, pwd.getpwnam(owner).pw_uid, -1)
        return place

    def collect(self, **options: Any) -> None:
        config = PyFileConfigLoader(CONFIG, path=str(self.course)).load_config()
        config.CourseDirectory.assignment_id = "lab"
        config.ExchangeCollect.update = True
        config.ExchangeCollect.merge(options)
        ExchangeFactory(config=config).Collect(coursedir=CourseDirectory(config=config)).start()

    def home(self, student: str) -> Path:
        return self.course / "submitted" / student / "lab"

    def code(self, student: str) -> str:
        return (self.home(student) / "exercises" / "data.py").read_text()

    def row(self, student: str) -> list[str]:
        """What the student's row asks an instructor to look at; not that there are few modules in these."""
        found = read_submission(student, self.home(student))
        record = SubmissionRecord(student, found.key, (), unread=found.unread, look=found.look)
        return [said for said in record.to_look if not said.startswith("an incomplete set")]


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty one."""
    file = tmp_path_factory.mktemp("gradebook") / "gradebook.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nbgrader.api.get_alembic_version", lambda: "any")  # which starts a program to find out
        Gradebook(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def exchange(tmp_path: Path, gradebook: Path) -> Exchange:
    made = Exchange(tmp_path)
    shutil.copyfile(gradebook, made.course / gradebook.name)
    return made


def test_links_and_devices_are_not_copied_and_stand_in_the_row(exchange: Exchange, tmp_path: Path):
    solutions = tmp_path / "solutions"
    solutions.mkdir()
    (solutions / "data.py").write_text("SECRET\n")
    (tmp_path / "other.ipynb").write_text("SECRET")
    place = exchange.put(ME)
    (place / "1_model.ipynb").unlink()
    (place / "1_model.ipynb").symlink_to(tmp_path / "other.ipynb")
    (place / "exercises" / "data.py").unlink()
    (place / "exercises").rmdir()
    (place / "exercises").symlink_to(solutions)
    os.mkfifo(place / "model.py")
    (place / "notes").symlink_to("/etc/passwd")
    os.mknod(place / "s", stat.S_IFSOCK | 0o600)
    exchange.collect()
    home = exchange.home(ME)
    assert {path.name for path in home.iterdir()} == {"timestamp.txt", STAND_IN}
    assert "SECRET" not in "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    said = "; ".join(exchange.row(ME))
    for name, what in {
        "exercises": "a symbolic link",
        "1_model.ipynb": "a symbolic link",
        "notes": "a symbolic link",
        "model.py": "a pipe",
        "s": "a socket",
    }.items():
        assert f"{name} is {what}, and was left out" in said


def test_a_submission_that_is_a_link_itself_is_not_collected(
    exchange: Exchange, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "solutions" / "exercises").mkdir(parents=True)
    (exchange.inbound / f"{ME}+lab+{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC+x").symlink_to(tmp_path / "solutions")
    exchange.put("bob")
    exchange.collect(check_owner=False)
    assert not exchange.home(ME).exists()
    assert exchange.code("bob") == "# of bob\n"


@as_root
def test_a_hard_link_to_another_user_s_file_is_not_copied(exchange: Exchange, tmp_path: Path):
    place = exchange.put(OTHER, owner=OTHER)
    (place / "exercises" / "data.py").unlink()
    (tmp_path / "secret").write_text("SECRET")
    os.link(tmp_path / "secret", place / "exercises" / "data.py")
    exchange.collect()
    assert not (exchange.home(OTHER) / "exercises" / "data.py").exists()
    assert "exercises/data.py is a hard link to another user's file, and was left out" in exchange.row(OTHER)


@as_root
def test_nobody_s_submission_is_replaced_by_another_user_s(exchange: Exchange):
    exchange.put(OTHER, owner=OTHER, ago=timedelta(minutes=5))
    exchange.collect()
    assert exchange.row(OTHER) == []
    forged = exchange.put(OTHER, owner="bin")
    for _ in range(2):
        exchange.collect()
        assert exchange.code(OTHER) == f"# of {OTHER}\n"
        [said] = exchange.row(OTHER)
        assert said.startswith("bin has handed in under this name (daemon+lab+")
        assert "what was there before counts" in said
    exchange.put(OTHER, owner=OTHER)  # the student's own later one counts, and the forged one is still told
    exchange.collect()
    assert "bin has handed in" in exchange.row(OTHER)[0]
    forged.rename(exchange.course / "away")  # a person has decided
    exchange.collect()
    assert exchange.row(OTHER) == []


@as_root
def test_a_submission_without_an_honest_one_is_collected_and_told(exchange: Exchange):
    exchange.put("alice", owner="bin")
    exchange.collect()
    assert exchange.row("alice") == ["it claims to be submitted by alice but is owned by bin: ask both"]
    exchange.put("alice", owner="bin")
    exchange.collect()
    assert exchange.row("alice") == ["it claims to be submitted by alice but is owned by bin: ask both"]
    exchange.put("alice", owner=OTHER)
    exchange.collect()
    assert exchange.code("alice") == "# of bin\n"
    assert "daemon has handed in under this name" in exchange.row("alice")[0]


def test_a_time_that_the_file_system_contradicts_is_told(exchange: Exchange):
    exchange.put(ME, claimed="2020-01-01 10:00:00 UTC")
    exchange.collect()
    [said] = exchange.row(ME)
    assert said.startswith("by its name it was submitted 2020-01-01 10:00:00 UTC, by the file system it came 2")


def test_trouble_with_one_submission_is_no_other_s(exchange: Exchange):
    for name in (
        "eve+lab+no time at all+x",
        "eve+lab",
        "e\x1bve+lab+2026-01-01 10:00:00 UTC+x",
        '=HYPERLINK("a")+lab+2026-01-01 10:00:00 UTC+x',
        "eve+lab+99999999999999999999-01-01 UTC+x",
    ):
        (exchange.inbound / name).mkdir()
    (exchange.inbound / "eve+lab+2026-01-01 10:00:00 UTC+file").write_text("")
    large = exchange.put("large")
    with (large / "big.bin").open("wb") as file:
        file.truncate(99_000_000)
    with (large / "bigger.bin").open("wb") as file:
        file.truncate(99_000_000)
    deep = exchange.put("deep")
    for _ in range(30):
        deep = deep / "d"
        deep.mkdir()
    huge = exchange.put("huge")
    with (huge / "huge.bin").open("wb") as file:
        file.truncate(101_000_000)
    stamp = exchange.put("stamp")
    (stamp / "timestamp.txt").write_text("no time at all")
    exchange.put("bob")
    exchange.collect(check_owner=False)
    exchange.put("stamp")
    exchange.collect(check_owner=False)
    assert {path.name for path in (exchange.course / "submitted").iterdir()} == {
        "bob",
        "deep",
        "huge",
        "large",
        "stamp",
    }
    assert "could not be collected: it has more than 95 MB" in "; ".join(exchange.row("large"))
    assert exchange.row("bob") == []
    assert any("is too deep" in said for said in exchange.row("deep"))
    assert exchange.row("huge") == ["huge.bin is larger than 95 MB, and was left out"]


def test_only_its_owner_can_read_what_was_collected(exchange: Exchange):
    place = exchange.put(ME)
    (place / "exercises" / "data.py").chmod(0o666)
    before = os.umask(0)
    try:
        exchange.collect()
    finally:
        os.umask(before)
    home = exchange.home(ME)
    modes = {path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
    assert modes == {0o700, 0o600}


def test_what_lies_in_submitted_is_looked_at_again_before_nbgrader_copies_it(exchange: Exchange, tmp_path: Path):
    exchange.put(ME)
    exchange.collect()
    home = exchange.home(ME)
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "model.py").write_text("SECRET")
    (home / "exercises" / "model.py").symlink_to(tmp_path / "solutions" / "model.py")
    (home / "exercises" / "notes").symlink_to(tmp_path / "solutions")
    (home / "timestamp.txt").write_text("x" * 1_000_000)
    before = exchange.row(ME)
    assert before == ["exercises/model.py is a symbolic link, and was left out"]
    key = read_submission(ME, home).key
    dropped = drop_links(home)
    assert {path.name for path in dropped} == {"model.py", "notes", "timestamp.txt"}
    assert exchange.row(ME) == [*before, "its timestamp.txt holds no time, and was left out"]
    assert drop_links(home) == []
    assert exchange.row(ME) == [*before, "its timestamp.txt holds no time, and was left out"]
    assert (tmp_path / "solutions" / "model.py").exists()
    (home / "timestamp.txt").write_text("2026-01-01 10:00:00 UTC")
    assert drop_links(home) == []
    (home / "timestamp.txt").unlink()
    (home / "timestamp.txt").mkdir()
    assert drop_links(home) == [home / "timestamp.txt"]
    assert key != read_submission(ME, home).key


def test_what_a_later_submission_lacks_stays(exchange: Exchange):
    first = exchange.put(ME, ago=timedelta(minutes=5))
    (first / "exercises" / "model.py").write_text("# model\n")
    (first / "results" / "run-1").mkdir(parents=True)
    (first / "results" / "results.csv").write_text("measured")
    (first / "results" / "run-1" / "run.csv").write_text("a run")
    exchange.collect()
    measured = exchange.home(ME) / "results" / "results.csv"
    assert measured.read_text() == "measured"  # of a folder that nbgrader ignores
    assert sorted(path.name for path in measured.parent.rglob("*")) == ["results.csv"]
    exchange.put(ME)
    exchange.collect()
    assert measured.read_text() == "measured"
    assert (exchange.home(ME) / "exercises" / "model.py").read_text() == "# model\n"
    assert exchange.row(ME) == ["as handed in before, as the last hand-in lacks them: model.py"]


def test_damaged_notes_are_told_and_cost_nothing(exchange: Exchange):
    exchange.put(ME)
    exchange.collect()
    home = exchange.home(ME)
    write_notes(home, Notes(ME, ME, ("a link",), ("a claim",)))
    assert read_notes(home) == Notes(ME, ME, ("a link",), ("a claim",))
    assert exchange.row(ME) == ["a claim", "a link"]
    (home.parent / "lab-notes.json").write_text("[]")
    assert "lab-notes.json cannot be read" in exchange.row(ME)[0]


def test_work_in_a_folder_that_is_not_collected_is_told(exchange: Exchange):
    place = exchange.put("alice")
    (place / "exercises" / "data.py").unlink()
    for name in (
        "results/x/model.py",
        ".lab/backup/data.py",
        "results/run.csv",
        "results/x/train.log",
        ".lab/__pycache__/x.py",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("# mine\n")
    exchange.collect()
    both = ".lab/backup/data.py, results/x/model.py"
    assert any(
        f"work in folders that are passed over, and not used: {both}" in said for said in exchange.row("alice")
    )
    copied = {path.relative_to(exchange.home("alice")).as_posix() for path in exchange.home("alice").rglob("*.*")}
    assert {name for name in copied if name.startswith(("results/", ".lab/"))} == set(both.split(", "))
    assert stat.S_IMODE((exchange.home("alice") / "results" / "x").stat().st_mode) == 0o700
