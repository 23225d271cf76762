"""lab watch: what counts as a save, which exercise comes next, and a session in a real terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_helpers import processes_in, wait_for

from lab.cli import main
from lab.grading import suite
from lab.grading.check import Check, Group
from lab.grading.diagnosis import CheckEnded, Diagnosis, LabError, NotStarted
from lab.grading.suite import ExerciseResult
from lab.ranks.rank import Rank
from lab.ranks.server import RankServer
from lab.student import outcomes, saves
from lab.student.saves import Saves
from lab.student.watch import Watch
from lab.syllabus.syllabus import MODULES, Exercise, syllabus


def sleep(rank: Rank) -> None:
    time.sleep(600)


def awake(rank: Rank) -> int:
    return rank.rank


# Saves ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("1\n")
    return tmp_path


def test_each_kind_of_save_is_noticed_once(folder: Path):
    watched = Saves(folder, ["a.py", "b.py"])
    assert watched.pending() == set()
    (folder / "a.py").write_text("2\n")
    assert watched.take() == {"a.py"}
    (folder / "new").write_text("3\n")
    (folder / "new").rename(folder / "a.py")  # as vim and JupyterLab save
    assert watched.take() == {"a.py"}
    when = (folder / "a.py").stat()
    (folder / "a.py").write_text("4\n")  # within the same tick of a coarse clock
    os.utime(folder / "a.py", ns=(when.st_atime_ns, when.st_mtime_ns))
    (folder / "b.py").touch()  # saved without a change: somebody wants to see it again
    os.utime(folder / "b.py", ns=(1, 1))
    assert watched.take() == {"a.py", "b.py"}
    (folder / "c.py").write_text("not ours")
    assert watched.pending() == set()


def test_a_save_in_pieces_is_one_save(folder: Path):
    watched = Saves(folder, ["a.py"])

    def save() -> None:
        (folder / "a.py").unlink()
        time.sleep(0.1)
        with open(folder / "a.py", "w") as file:
            time.sleep(0.1)
            file.write("whole")

    thread = threading.Thread(target=save)
    thread.start()
    assert watched.take() == {"a.py"}
    assert (folder / "a.py").read_text() == "whole"
    thread.join()
    assert watched.pending() == set()


def test_a_file_that_stays_away_or_is_none_is_a_save_too(folder: Path, monkeypatch):
    monkeypatch.setattr(saves, "UNFINISHED", 0.05)
    watched = Saves(folder, ["a.py"])
    (folder / "a.py").unlink()
    assert watched.take() == {"a.py"}
    os.mkfifo(folder / "a.py")  # reading it would never end
    assert watched.take() == {"a.py"}
    (folder / "a.py").unlink()
    (folder / "a.py").mkdir()
    assert watched.take() == {"a.py"}
    (folder / "a.py").rmdir()
    with open(folder / "a.py", "wb") as file:
        file.truncate(1 << 40)  # nothing to read into memory
    assert watched.take() == {"a.py"}


# Which exercise ---------------------------------------------------------------------------------------------


class NoRanks:
    """Stands for the rank server in tests without ranks."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def end_groups(self) -> None:
        self.ended.set()


class Student:
    """Modules in which the word of an exercise, say `3.2:passed`, is how its check ends."""

    def __init__(self, folder: Path, server: NoRanks) -> None:
        self.folder = folder
        self.server = server
        self.words = dict.fromkeys(syllabus().ids, "todo")
        (folder / "exercises").mkdir()
        for module in MODULES:
            self.write(module)

    def write(self, module: str) -> None:
        functions = [
            f"def {e.function.partition('.')[0]}():\n    '{e.id}:{self.words[e.id]} '\n"
            for e in syllabus().exercises
            if e.module == module
        ]
        file = self.folder / "exercises" / f"{module}.py"
        (self.folder / "unfinished").write_text("".join(functions) + f"# {time.time_ns()}\n")
        (self.folder / "unfinished").rename(file)

    def save(self, **words: str) -> None:
        """Say how exercises end from now on (e3_2="passed") and save their files."""
        names = {name[1:].replace("_", "."): word for name, word in words.items()}
        self.words |= names
        for module in {syllabus()[name].module for name in names}:
            self.write(module)

    def saves_while(self, watch: Watch, **words: str) -> Iterator[Exercise | ExerciseResult]:
        """Save, and return what the watch makes of it."""
        self.save(**words)
        return watch.after_save(watch.saves.take())

    def watch(self, *ids: str) -> Watch:
        exercises = syllabus().select(list(ids)) if ids else list(syllabus().exercises)
        return Watch(exercises, self.folder / "exercises", syllabus(), self.server)


@pytest.fixture
def student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Student:
    def checks_of(exercise: Exercise) -> list[Check]:
        def judge(group: Group) -> None:
            text = (group.code / exercise.file).read_text()
            word = text.partition(f"{exercise.id}:")[2].split()[0]
            if word == "todo":
                raise CheckEnded(NotStarted(exercise.id))
            if word == "wrong":
                raise Diagnosis("wrong", saw="a", means="b", look="c")
            if word == "labs":
                raise CheckEnded(LabError("no ranks"))
            if word == "hangs":
                assert student.server.ended.wait(60), "nobody ends the check"

        return [Check(exercise.id, exercise.title, judge)]

    monkeypatch.setattr(suite, "checks_of", checks_of)
    student = Student(tmp_path, NoRanks())
    return student


def story(steps) -> str:
    """What came of the exercises that were checked: "1.1 passed, 2.1 not started"."""
    return ", ".join(
        f"{step.exercise.id} {step.outcome.word}" for step in steps if isinstance(step, ExerciseResult)
    )


def test_it_stays_with_an_exercise_until_it_passes_and_then_goes_on(student: Student):
    watch = student.watch()
    assert story(watch.begin()) == "1.1 not started"
    assert story(student.saves_while(watch, e1_1="wrong")) == "1.1 failed"
    assert story(student.saves_while(watch, e1_1="passed")) == "1.1 passed, 2.1 not started"
    assert watch.current == syllabus()["2.1"]
    assert [e.id for e in watch.done] == ["1.1"]


def test_what_a_save_has_undone_is_checked_again_before_it_goes_on_to_another_file(student: Student):
    student.save(e1_1="passed", e2_1="passed", e2_2="passed", e2_3="todo")
    watch = student.watch()
    assert story(watch.begin()) == "1.1 passed, 2.1 passed, 2.2 passed, 2.3 not started"
    steps = student.saves_while(watch, e2_1="wrong", e2_3="passed")
    assert story(steps) == "2.3 passed, 2.1 failed", "what had passed is broken now"


def test_it_follows_a_student_who_turns_to_another_file_and_stays_there(student: Student):
    watch = student.watch()
    assert story(watch.begin()) == "1.1 not started"
    assert story(student.saves_while(watch, e6_1="wrong")) == "6.1 failed"
    assert story(student.saves_while(watch, e6_1="passed")) == "6.1 passed, 6.2 not started"
    student.words |= {"6.2": "passed", "6.3": "passed"}
    assert story(student.saves_while(watch, e6_2="passed")) == "6.2 passed, 6.3 passed, 1.1 not started"


def test_a_blocked_exercise_gives_way_to_the_one_it_needs(student: Student):
    student.save(e1_1="passed")
    watch = student.watch()
    list(watch.begin())
    assert story(student.saves_while(watch, e3_3="wrong")) == "3.1 not started"
    student.words |= {"3.1": "passed"}
    assert story(student.saves_while(watch, e3_2="todo")) == "3.1 passed, 3.2 not started"
    only = student.watch("3.3")
    assert story(only.begin()) == "3.3 blocked, 3.2 not started"
    assert story(student.saves_while(only, e3_2="passed")) == "3.2 passed, 3.3 failed"


def test_a_lab_error_and_a_broken_file_are_not_the_end(student: Student):
    watch = student.watch()
    list(watch.begin())
    assert story(student.saves_while(watch, e1_1="labs")) == "1.1 lab error"
    (student.folder / "exercises" / "model.py").write_text("def f(\n")
    (result,) = [s for s in watch.after_save(watch.saves.take()) if isinstance(s, ExerciseResult)]
    assert result.outcome.diagnosis.name == "syntax-error"
    assert story(student.saves_while(watch, e1_1="passed")) == "1.1 passed, 2.1 not started"


def test_a_save_ends_the_check_that_runs_and_its_result_is_not_shown(student: Student):
    watch = student.watch()
    list(watch.begin())
    steps = student.saves_while(watch, e1_1="hangs")
    assert next(steps) == syllabus()["1.1"]
    timer = threading.Timer(0.2, student.save, kwargs={"e1_1": "passed"})
    timer.start()
    assert list(steps) == []
    timer.join()
    assert watch.done == []
    assert story(watch.after_save(watch.saves.take())) == "1.1 passed, 2.1 not started"


def test_what_passed_before_is_remembered_and_what_passes_now_is_kept(student: Student):
    student.save(e1_1="passed")
    list(student.watch().begin())
    assert outcomes.passed(student.folder / "exercises", syllabus()) == {"1.1"}
    assert story(student.watch().begin()) == "2.1 not started"


def test_when_all_have_passed_it_ends_with_0(student: Student, monkeypatch, capsys):
    student.save(**{f"e{name.replace('.', '_')}": "passed" for name in syllabus().ids})
    monkeypatch.chdir(student.folder)
    assert main(["watch"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("\n0 of 14 passed\n 1.1  A network")
    assert out.endswith("\n\nAll 14 exercises passed.\n")
    assert "\x1b" not in out
    assert main(["watch", "3"]) == 0
    assert "All 3 exercises passed" in capsys.readouterr().out


def test_groups_that_are_ended_from_another_thread_end_at_once():
    """Whatever they are doing, starting too; the server goes on."""
    with RankServer() as server:
        assert server.run("time:sleep", 1, code=None, set_up_process_group=False).reports[0].status == "raised"
        over = threading.Event()

        def end() -> None:
            while not over.wait(0.001):
                server.end_groups()

        thread = threading.Thread(target=end)
        thread.start()
        begin = time.monotonic()
        results = [server.run(sleep, 2, code=None, set_up_process_group=False) for _ in range(8)]
        took = time.monotonic() - begin
        over.set()
        thread.join()
        assert all(report.status == "killed" for result in results for report in result.reports)
        assert took < 30, "each has waited for the process that starts the ranks to end"
        assert server.run(awake, 2, code=None, set_up_process_group=False).values == [0, 1]


# A session --------------------------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal of 60 columns with a command in it."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        self.text = ""
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_own_terminal
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_until(self, text: str) -> str:
        """Everything up to `text`, taken out of what has come."""
        wait_for(lambda: self._more() and text in self.text, f"{text!r} in {self.text!r}")
        said, _, self.text = self.text.partition(text)
        return said + text

    def _more(self) -> bool:
        while select.select([self._ours], [], [], 0)[0]:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # the command has ended
                break
            self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_session_in_a_terminal(tmp_path: Path, root: Path):
    assert main(["start", str(tmp_path / "my-lab")]) == 0
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "my-lab" / "exercises" / "model.py"
    solution = (root / "solutions" / "model.py").read_text()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "TMPDIR": str(tmp_path / "tmp"), "NO_COLOR": "1"}
    terminal = Terminal([sys.executable, "-m", "lab.cli", "watch"], tmp_path / "my-lab", env)
    try:
        waiting = "Ctrl-C ends.\nStuck? In another terminal: lab hint "
        screen = terminal.read_until(waiting + "1.1\n")
        assert screen.startswith("\x1b[2J\x1b[H0 of 14 passed\n")
        assert (
            "not started: see TODO 1.1 in exercises/model.py\n\nWaiting until you save exercises/model.py."
            in screen
        )

        file.write_text(solution[: solution.index("shape[1:]")])
        screen = terminal.read_until(waiting + "1.1\n")
        assert screen.startswith("\x1b[2J")
        assert "saw    Python cannot read model.py:" in screen

        file.write_text(f"import time\nopen('started', 'w')\ntime.sleep(600)\n{solution}")
        wait_for(lambda: (file.parent / "started").exists(), "the start of the rank")
        begin = time.monotonic()
        (tmp_path / "unfinished").write_text(solution)
        (tmp_path / "unfinished").rename(file)
        screen = terminal.read_until(waiting + "2.1\n").rpartition("\x1b[2J")[2]
        assert time.monotonic() - begin < 25, "the check that hung was not ended"
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in screen.split("\n")]  # as drawn last
        assert lines[1].startswith(" 1.1  A network for any batch size     ✓ passed")
        assert lines[2].startswith(" 2.1  Who am I? Rank and world size    · not started")

        terminal.type("\x03")
        terminal.read_until("1 of 14 passed. Nothing was left running.\n")
        assert terminal.process.wait(timeout=60) == 0
        assert not processes_in(tmp_path)
        assert not list((tmp_path / "tmp").iterdir())
    finally:
        terminal.close()


def test_it_ends_with_its_terminal(tmp_path: Path):
    """A window that is closed sends SIGHUP."""
    assert main(["start", str(tmp_path / "my-lab")]) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "watch"], cwd=tmp_path / "my-lab", stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Waiting"):
            break
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == -signal.SIGHUP
    wait_for(lambda: not processes_in(tmp_path), "the end of its processes")
