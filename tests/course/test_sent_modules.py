"""Which modules are graded where a student sent them twice, under other names, in parts or in other archives."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from lab.base.errors import UserError
from lab.course.books import LAB_TWO
from lab.course.folders import Notes, write_notes
from lab.course.sent import archives, contents, opening
from lab.course.sent.loose import nobodys
from lab.course.submissions import Submission, find_submissions, read_submission
from lab.grading.unreadable import unreadable
from lab.syllabus.syllabus import MODULES

FILES = {f"{name}.py" for name in MODULES}
OLD, NEW = 1_000_000_000, 1_000_100_000  # seconds


@pytest.fixture
def work(tmp_path: Path, root: Path) -> Path:
    """A finished submission."""
    folder = tmp_path / "class" / "alice"
    (folder / "exercises").mkdir(parents=True)
    for name in FILES:
        (folder / "exercises" / name).write_text(f"# {name} of alice\n")
    return folder


def stub(root: Path, target: Path) -> None:
    shutil.copyfile(root / "exercises" / target.name, target)


def written(folder: Path, name: str, text: str, time: float = OLD) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (time, time))


def graded(path: Path) -> Submission:
    return read_submission("alice", path)


def told(submission: Submission) -> str:
    return "; ".join((*submission.remarks, *submission.look))


@pytest.mark.parametrize("name", ["data (1).py", "Data.py", "data-1.py", "data - Copy.py", "DATA.PY"])
def test_a_module_under_nearly_its_name_is_it_where_there_is_no_other(work: Path, name: str):
    (work / "exercises" / "data.py").rename(work / "exercises" / name)
    found = graded(work)
    assert found.modules["data.py"] == b"# data.py of alice\n"
    assert (found.look, found.remarks) == ((), (f"exercises/{name} was graded as data.py",))


@pytest.mark.parametrize(
    "name", ["data_final.py", "mueller_data.py", "data.py.txt", "data.py.py", "data_v2_fixed.py"]
)
def test_a_module_under_a_name_of_the_student_s_own_is_graded_and_looked_at(work: Path, name: str):
    (work / "exercises" / "data.py").rename(work / "exercises" / name)
    found = graded(work)
    assert found.modules["data.py"] == b"# data.py of alice\n"
    assert found.look == (f"exercises/{name} was graded as data.py",)


@pytest.mark.parametrize("name", ["dtaa.py", "data"])
def test_what_lies_in_the_place_of_a_missing_module_is_named(work: Path, name: str):
    (work / "exercises" / "data.py").rename(work / "exercises" / name)
    (work / "exercises" / "fast.py").write_text("# of part two\n")
    assert f"an incomplete set of modules: without data.py; beside them: {name}" in graded(work).look


def test_a_copy_beside_an_untouched_stub_is_the_work(work: Path, root: Path):
    (work / "exercises" / "data.py").rename(work / "exercises" / "data (1).py")
    stub(root, work / "exercises" / "data.py")
    found = graded(work)
    assert found.modules["data.py"] == b"# data.py of alice\n"
    assert "exercises/data (1).py was graded as data.py, for exercises/data.py is as it was given out" in told(
        found
    )


def test_of_two_that_differ_the_one_of_the_right_name_counts_and_a_person_looks(work: Path):
    written(work, "exercises/data (1).py", "# another\n")
    found = graded(work)
    assert found.modules["data.py"] == b"# data.py of alice\n"
    assert found.look == (
        "exercises/data.py was graded as data.py; not exercises/data (1).py, which says something else",
    )
    written(work, "exercises/data (1).py", "# data.py of alice\n")
    assert graded(work).look == ()
    written(work, "exercises/test_data.py", "# a program of their own\n")
    assert graded(work).look == ()


def test_finished_modules_are_graded_wherever_they_lie_beside_stubs(work: Path, root: Path):
    for name in FILES:
        (work / "exercises-original").mkdir(exist_ok=True)
        stub(root, work / "exercises-original" / name)
    (work / "exercises" / "main.py").unlink()
    found = graded(work)
    assert {name for name, text in found.modules.items() if b"of alice" in text} == FILES - {"main.py"}
    assert found.modules["main.py"] == (root / "exercises" / "main.py").read_bytes()
    assert "main.py is missing beside the others" in found.look[0]
    (work / "exercises" / "data.py").rename(work / "data.py")
    stub(root, work / "exercises" / "data.py")
    found = graded(work)
    assert found.modules["data.py"] == b"# data.py of alice\n"
    assert any("data.py was graded as data.py, for exercises/data.py is as" in said for said in found.look)


def test_part_two_among_part_one_is_told_where_it_was_begun(work: Path, root: Path):
    stub(root, work / "exercises" / "fast.py")
    assert graded(work).remarks == ()
    written(work, "exercises/fast.py", "# done\n")
    assert graded(work).remarks == (
        "exercises/fast.py is of part two, another assignment, and was not graded here",
    )


def test_an_incomplete_set_is_to_look_at(work: Path):
    for name in FILES - {"train.py"}:
        (work / "exercises" / name).unlink()
    found = graded(work)
    assert set(found.modules) == {"train.py"}
    [said] = found.look
    assert said.startswith("an incomplete set of modules: without data.py, ddp_utils.py")


def test_utf_16_is_read(work: Path):
    (work / "exercises" / "data.py").write_bytes("# é\nx = 1\n".encode("utf-16"))
    (work / "exercises" / "model.py").write_bytes("# é\nx = 1\n".encode("utf-16-le"))
    found = graded(work)
    assert found.modules["data.py"] == found.modules["model.py"] == "# é\nx = 1\n".encode()
    assert "exercises/data.py is in UTF-16" in told(found)


def zipped(folder: Path, target: Path, time: float = OLD) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        os.utime(path, (time, time))
    return Path(shutil.make_archive(str(target.with_suffix("")), "zip", folder))


def tarred(folder: Path, target: Path, mode: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, mode) as archive:
        archive.add(folder, "my-lab")
    return target


TARS = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.xz": "w:xz", "tar.bz2": "w:bz2"}


@pytest.mark.parametrize(("end", "mode"), TARS.items())
def test_tars_are_read(work: Path, tmp_path: Path, end: str, mode: str):
    (work / "exercises" / "._data.py").write_bytes(b"\0\5\26\7")  # as macOS adds them
    path = tarred(work, tmp_path / "tars" / f"alice.{end}", mode)
    assert find_submissions(path.parent) == {"alice": path}
    assert set(graded(path).modules) == FILES
    inside = tmp_path / "inside" / "alice"
    inside.mkdir(parents=True)
    shutil.copy(path, inside)
    assert set(graded(inside).modules) == FILES


def test_a_tar_cannot_lead_out_of_itself(work: Path, tmp_path: Path):
    path = tarred(work, tmp_path / "alice.tar", "w")
    with tarfile.open(path, "a") as archive:
        for name, kind in (("my-lab/exercises/l.py", tarfile.SYMTYPE), ("../../x.py", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    found = graded(path)
    assert set(found.modules) == FILES
    assert "2 files of the tar left out" in found.look[0]


@pytest.mark.parametrize("damage", ["cut off", "a bomb", "no tar"])
def test_a_damaged_tar_is_a_sentence(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str):
    path = tarred(work, tmp_path / "alice.tar.gz", "w:gz")
    if damage == "cut off":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "a bomb":
        monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 10_000)
    else:
        path.write_bytes(b"hello")
    found = graded(path)
    assert found.modules == {}
    assert "alice.tar.gz is no archive file that can be read" in found.unread


def test_what_python_cannot_read_is_said_by_name(tmp_path: Path):
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "alice.7z").write_bytes(b"7z\xbc\xaf\x27\x1c rest")
    (folder / "bob.rar").write_bytes(b"Rar!\x1a\x07 rest")
    (folder / "eve.pdf").write_bytes(b"%PDF")
    (folder / "zoe").mkdir()
    (folder / "zoe" / "homework.rar").write_bytes(b"Rar!\x1a\x07 rest")
    (folder / "joe.zip").write_bytes(b"Rar!\x1a\x07 rest")
    (folder / "kim").mkdir()
    unread = {name: read_submission(name, path).unread for name, path in find_submissions(folder).items()}
    assert unread["alice"].startswith("alice.7z is a 7z archive, which is not read: unpack it")
    assert unread["bob"].startswith("bob.rar is a RAR archive")
    assert unread["joe"].startswith("joe.zip is a RAR archive")
    assert unread["eve"].endswith("what was sent: eve.pdf")
    assert unread["zoe"].endswith("what was sent: homework.rar")
    assert unread["kim"].endswith("what was sent: nothing")
    assert "homework.rar is a RAR archive" in read_submission("zoe", folder / "zoe").look[0]


@pytest.mark.parametrize("name", ["1_model.ipynb.json", "1_model.ipynb.txt", "1_model.IPYNB"])
def test_a_notebook_whose_name_does_not_end_so_is_told(work: Path, name: str):
    (work / name).write_text('{"cells": []}')
    [said] = graded(work).look
    assert said == f"{name} is a notebook by its name, and was not read: its name has to end in .ipynb"


@pytest.mark.parametrize("name", ["1_model.py", "3_data (1).py", "answers.xlsx", "plot.gif", "answers.odp"])
def test_a_notebook_as_a_script_or_a_table_is_for_a_person(work: Path, name: str):
    (work / name).write_text("# The batch differs.")
    assert any(said == f"not used, and to be read by a person: {name}" for said in graded(work).look)


def test_a_text_beside_the_modules_is_told_once(work: Path, tmp_path: Path):
    home = tmp_path / "course" / "submitted" / "alice" / "lab"
    shutil.copytree(work, home)
    (home / "exercises" / "notes.txt").write_text("because")
    look = read_submission("alice", home).look
    write_notes(home, Notes("alice", copied=look))
    assert read_submission("alice", home).look == look


def test_a_zip_in_a_zip_beside_a_paper_is_read(work: Path, tmp_path: Path):
    inner = zipped(work, tmp_path / "inner" / "my-lab.zip")
    (inner.parent / "report.pdf").write_bytes(b"%PDF")
    (inner.parent / "notes.txt").write_text("My answer to 1:\nbecause.")
    outer = zipped(inner.parent, tmp_path / "zips" / "alice.zip")
    again = zipped(outer.parent, tmp_path / "bob.zip")
    for path in (inner.parent, outer, again):
        found = graded(path)
        assert set(found.modules) >= FILES
        assert any("notes.txt was not used; it says: My answer to 1: because." in said for said in found.look)
        assert any("to be read by a person: " in said and "report.pdf" in said for said in found.look)


def test_of_two_zips_the_newer_counts_module_by_module(work: Path, tmp_path: Path):
    folder = tmp_path / "two"
    zipped(work, folder / "alice" / "my-lab.zip", OLD)
    for name in FILES - {"train.py"}:
        (work / "exercises" / name).unlink()
    written(work, "exercises/train.py", "# corrected\n")
    zipped(work, folder / "alice" / "my-lab (1).zip", NEW)
    shutil.copy(folder / "alice" / "my-lab.zip", folder / "bob.zip")
    shutil.copy(folder / "alice" / "my-lab (1).zip", folder / "bob (1).zip")
    found = find_submissions(folder)
    assert sorted(found) == ["alice", "bob"]
    for path in found.values():
        submission = graded(path)
        assert submission.modules["train.py"] == b"# corrected\n"
        assert submission.modules["data.py"] == b"# data.py of alice\n"
        assert any("exercises/train.py was graded, which is later than" in said for said in submission.look)


def test_loose_files_are_put_together_by_their_students_names(work: Path, tmp_path: Path):
    folder = tmp_path / "flat"
    folder.mkdir()
    for number, name in enumerate(sorted(FILES)):
        shutil.copy(work / "exercises" / name, folder / f"muellerzoe_1234_{number}_{name}")
    shutil.copy(work / "exercises" / "train.py", folder / "bob_train.py")
    (folder / "bob_1_model.ipynb").write_text('{"cells": []}')
    (folder / "eve.ipynb").write_text('{"cells": []}')
    (folder / "__MACOSX").mkdir()
    for name in ("marks.csv", "model.py", "run_benchmarks.py", "notes.txt"):
        (folder / name).write_text("no submission\n")
    (folder / "joe.zip").write_bytes(zipped(work, tmp_path / "joe.zip").read_bytes())
    (folder / "joe.pdf").write_bytes(b"%PDF")
    found = {name: read_submission(name, path) for name, path in find_submissions(folder).items()}
    assert sorted(found) == ["bob", "eve", "joe", "muellerzoe_1234"]
    assert nobodys(folder) == ["marks.csv", "model.py", "notes.txt", "run_benchmarks.py"]
    assert set(found["muellerzoe_1234"].modules) == set(found["joe"].modules) == FILES
    assert set(found["bob"].modules) == {"train.py"}
    assert list(found["bob"].notebooks) == ["1_model.ipynb"]
    assert found["eve"].unread
    assert "joe.pdf" in told(found["joe"])


def test_a_paper_beside_a_folder_does_not_stop_the_class(work: Path):
    (work.parent / "alice.pdf").write_bytes(b"%PDF")
    assert find_submissions(work.parent) == {"alice": work}
    assert nobodys(work.parent) == ["alice.pdf"]  # which `lab grade` tells
    (work.parent / "alice.tar").write_bytes(b"")
    with pytest.raises(UserError, match="alice is there twice"):
        find_submissions(work.parent)


def test_archives_in_archives_take_no_more_room_than_the_limit(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "many").mkdir()
    (work / "large.bin").write_bytes(os.urandom(40_000))
    inner = zipped(work, tmp_path / "inner.zip")
    for number in range(5):
        shutil.copy(inner, tmp_path / "many" / f"{number}.zip")
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 100_000)
    found = graded(zipped(tmp_path / "many", tmp_path / "alice.zip"))
    assert set(found.modules) == FILES
    assert sum("was not opened: unpacked it has more than" in said for said in found.look) == 3
    monkeypatch.setattr(opening, "MAX_INNER", 1)
    assert any("that were not opened: 1.zip, 2.zip" in said for said in graded(tmp_path / "alice.zip").look)


def test_an_archive_in_a_submission_that_is_a_link_is_not_opened(work: Path, tmp_path: Path):
    packed = zipped(work, tmp_path / "secret.zip")
    (work / "more.zip").symlink_to(packed)
    assert "more.zip (a symbolic link)" in told(graded(work))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x/model.py", "# other\n")
    (work / "old.zip").write_bytes(stream.getvalue()[:-30])
    assert any("old.zip is no zip file that can be read" in said for said in graded(work).look)


@pytest.mark.parametrize("sent", ["exercises/from_scratch/ring.py", "exercises/ring.py", "ring (1).py"])
def test_a_module_with_a_folder_of_its_own_is_found_with_it_and_without(tmp_path: Path, sent: str):
    folder = tmp_path / "class" / "alice"
    written(folder, f"{PurePosixPath(sent).parts[0]}/fast.py" if "/" in sent else "fast.py", "# fast of alice\n")
    written(folder, sent, "# ring of alice\n")
    found = read_submission("alice", folder, assignment=LAB_TWO)
    assert found.modules["fast.py"] == b"# fast of alice\n"
    assert found.modules["from_scratch/ring.py"] == b"# ring of alice\n"
    assert not [one for one in found.look if "ring" in one]


@pytest.mark.parametrize("sent", ["exercises/from_scratch/main.py", "exercises/main (1).py"])
def test_the_given_main_of_part_two_is_no_main_of_part_one(work: Path, root: Path, sent: str):
    written(work, sent, (root / "exercises" / "from_scratch" / "main.py").read_text(), NEW)
    found = graded(work)
    assert found.modules["main.py"] == b"# main.py of alice\n"
    assert (found.look, found.remarks) == ((), ())
    (work / "exercises" / "main.py").unlink()
    assert "main.py" not in graded(work).modules


def test_a_main_of_part_two_that_was_changed_is_no_main_of_part_one(work: Path):
    written(work, "exercises/from_scratch/main.py", "# with more options\n", NEW)
    found = graded(work)
    assert found.modules["main.py"] == b"# main.py of alice\n"
    assert (found.look, found.remarks) == ((), ())


HIDDEN = ("results/x/model.py", ".x/model.py", "venv/model.py", "venv/x.zip", ".lab/backup-1/exercises/model.py")


@pytest.mark.parametrize("packs", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("name", HIDDEN)
def test_work_in_a_folder_that_is_passed_over_alone_is_told(tmp_path: Path, name: str, packs: bool):
    folder = tmp_path / "class" / "alice"
    written(folder, name, "# model of alice\n")
    found = graded(zipped(folder, tmp_path / "alice.zip") if packs else folder)
    assert found.unread.endswith(f"what was sent: {name}")
    assert found.look == (f"work in folders that are passed over, and not used: {name}",)
    assert found.modules == {}


def test_work_in_folders_that_are_passed_over_is_told_beside_a_stub_and_known_beside_work(work: Path, root: Path):
    written(work, "results/x/data.py", "# another\n")
    written(work, ".lab/backup-1/exercises/data.py", "# before\n")
    written(work, "results/x/model.py", (work / "exercises" / "model.py").read_text())
    found = graded(work)
    assert found.look == ()
    assert found.remarks == ("in folders that are passed over, and not used: results/x/data.py",)
    stub(root, work / "exercises" / "data.py")
    both = ".lab/backup-1/exercises/data.py, results/x/data.py"
    assert graded(work).look == (f"work in folders that are passed over, and not used: {both}",)


@pytest.mark.parametrize("packs", [False, True], ids=["folder", "zip"])
def test_what_programs_put_into_a_folder_is_no_noise(work: Path, tmp_path: Path, packs: bool):
    for name in ("venv/pyvenv.cfg", ".conda/conda-meta/history"):
        written(work, name, "")
    programs = ("venv/lib/python3/data.py", ".conda/lib/data.py", ".git/data.py", "x/__pycache__/data.py")
    programs += ("lib/site-packages/torch/data.py", "node_modules/model.py", ".vscode/settings.py")
    for name in (*programs, ".ipynb_checkpoints/data-checkpoint.py", "results/run/train.log"):
        written(work, name, "# no work\n")
    (work / "exercises" / "data.py").unlink()
    found = graded(zipped(work, tmp_path / "alice.zip") if packs else work)
    assert [one for one in told(found).split("; ") if "without data.py" not in one] == []


def test_more_files_than_are_looked_at_in_folders_that_are_passed_over_are_told(
    work: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(contents, "MAX_NAMES", 20)
    for number in range(21):
        written(work, f"results/{number}.txt", "")
    assert any("more than 20 files in folders that are passed over" in said for said in graded(work).remarks)


NAMES = (
    "README.md",
    "readme.md",
    "README",
    "answers",
    "1.txt",
    "notes/Antworten.MD",
    "docs/templates/paper.md",
    "a.org",
)


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_shown_without_what_was_given_out(work: Path, name: str, root: Path):
    given = (root / "lab" / "syllabus" / "student_readme.md").read_text()
    given += "What you had is kept in `.lab/backup-...`.\n"  # of a release before
    given += (root / "docs" / "templates" / "paper.md").read_text()
    written(work, name, given)
    assert graded(work).look == ()
    written(work, name, f"{given}\n1.1: The batch\ndiffers.\n")
    assert graded(work).look == (f"{name} was not used; it says: 1.1: The batch differs.",)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("name", ["answers", "answers.txt"])
def test_texts_are_read_as_editors_save_them(work: Path, name: str, encoding: str):
    (work / name).write_bytes("Größe: 7 GB".encode(encoding))
    assert graded(work).look == (f"{name} was not used; it says: Größe: 7 GB",)


def test_data_without_an_ending_is_no_text_and_a_text_that_is_too_large_is_named(work: Path):
    (work / "data").mkdir()
    (work / "data" / "data_batch_1").write_bytes(b"\0\1words and more")
    (work / "data" / "data_batch_2").write_bytes(b"\0\1words and more" * 1_000_000)
    assert graded(work).look == ()
    written(work, "answers.txt", "The batch differs. " * 1_000_000)
    assert graded(work).look == ("not used, and to be read by a person: answers.txt",)


def test_a_module_with_marks_of_a_merge_is_named(work: Path):
    written(work, "exercises/data.py", "x = '<<<<<<< HEAD'\n")
    assert graded(work).look == ()
    written(work, "exercises/data.py", "<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n")
    assert graded(work).look == ("exercises/data.py holds the marks of a merge that was not finished (<<<<<<<)",)
    found = unreadable(work / "exercises", "data.py")
    assert found is not None
    assert found.means.startswith("A merge was not finished")
