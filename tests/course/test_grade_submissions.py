"""What is read of a submission, and what is not: zips, links, damaged files, names of every kind."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from lab.base.errors import UserError
from lab.base.source import MAX_MODULE_BYTES
from lab.course import store
from lab.course.marks import SubmissionRecord
from lab.course.sent import archives, contents, cut_off, opening
from lab.course.submissions import MAX_SIZE, find_submissions, read_submission
from lab.ranks.sandbox import pack
from lab.syllabus.syllabus import MODULES


@pytest.fixture
def work(tmp_path: Path, root: Path) -> Path:
    """A submission as `lab start` lays it out."""
    folder = tmp_path / "class" / "alice"
    (folder / "exercises").mkdir(parents=True)
    for name in MODULES:
        (folder / "exercises" / f"{name}.py").write_text(f"# {name} of alice\n")
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "1_model.ipynb").write_text('{"cells": []}')
    return folder


def zipped(folder: Path, target: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, prefix + path.relative_to(folder).as_posix())
    return target


def names(path: Path) -> tuple[set[str], set[str]]:
    submission = read_submission("s", path)
    return set(submission.modules), set(submission.notebooks)


FILES = {f"{name}.py" for name in MODULES}


@pytest.mark.parametrize("prefix", ["", "my-lab/", "Group 7/my-lab/"])
def test_folders_and_zips_are_read_alike_however_they_are_wrapped(work: Path, tmp_path: Path, prefix: str):
    packed = zipped(work, tmp_path / "alice.zip", prefix)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")
    for place in (packed, tmp_path / "unpacked"):
        assert names(place) == (FILES, {"notebooks/1_model.ipynb"})
    assert read_submission("a", packed).key == read_submission("b", tmp_path / "unpacked").key


def test_modules_may_lie_at_the_top_and_then_only_what_can_be_imported_counts(work: Path):
    assert names(work / "exercises") == (FILES, set())
    (work / "exercises" / "data").mkdir()
    (work / "exercises" / "data" / "big.bin").write_bytes(b"x")
    assert names(work / "exercises") == (FILES, set())


def test_backups_and_checkpoints_do_not_count_and_a_second_folder_is_told(work: Path):
    for hidden in (".lab/backup-1", "notebooks/.ipynb_checkpoints", "results/run", "__MACOSX"):
        (work / hidden).mkdir(parents=True)
        (work / hidden / "data.py").write_text("old\n")
        (work / hidden / "1_model.ipynb").write_text("{}")
    assert names(work) == (FILES, {"notebooks/1_model.ipynb"})
    (work / "old").mkdir()
    (work / "old" / "data.py").write_text("old\n")
    submission = read_submission("alice", work)
    assert submission.modules["data.py"] == b"# data of alice\n"
    assert submission.remarks == (
        "modules in several folders: exercises was graded, not old",
        "in folders that are passed over, and not used: results/run/data.py",
    )


def test_links_and_pipes_are_left_out(work: Path, tmp_path: Path):
    secret = tmp_path / "secret.py"
    secret.write_text("42\n")
    (work / "exercises" / "data.py").unlink()
    (work / "exercises" / "data.py").symlink_to(secret)
    (work / "exercises" / "model.py").unlink()
    os.mkfifo(work / "exercises" / "model.py")
    (work / "exercises" / "more").symlink_to(tmp_path)
    submission = read_submission("alice", work)
    assert set(submission.modules) == FILES - {"data.py", "model.py"}
    assert submission.remarks == (
        "left out: exercises/data.py (a symbolic link), exercises/model.py (a pipe), "
        "exercises/more (a symbolic link)",
    )
    assert submission.look == (
        "exercises/data.py is a symbolic link, and was left out",
        "exercises/model.py is a pipe, and was left out",
        "an incomplete set of modules: without data.py, model.py",
    )


def test_a_submission_that_is_a_link_is_not_followed(work: Path, tmp_path: Path):
    packed = zipped(work, tmp_path / "packed.zip")
    (work.parent / "bob").symlink_to(work)
    (work.parent / "eve.zip").symlink_to(packed)
    submitted = tmp_path / "submitted"
    (submitted / "zoe").mkdir(parents=True)
    (submitted / "zoe" / "lab").symlink_to(work)
    (submitted / "joe").symlink_to(submitted / "zoe")
    shutil.copytree(work, tmp_path / "real" / "lab")
    (submitted / "mia").symlink_to(tmp_path / "real")
    found = find_submissions(work.parent) | find_submissions(submitted)
    assert sorted(found) == ["alice", "bob", "eve", "joe", "mia", "zoe"]
    for student in ("bob", "eve", "joe", "mia", "zoe"):
        submission = read_submission(student, found[student])
        assert not submission.modules
        assert "is a link, which is not followed" in submission.unread
    assert not read_submission("mia", submitted / "mia" / "lab").modules  # as nbgrader names it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_hard_link_to_another_user_s_file_is_left_out(work: Path, tmp_path: Path):
    secret = tmp_path / "secret.py"
    secret.write_text("42\n")
    os.link(secret, work / "exercises" / "helper.py")
    for path in (work, *work.rglob("*")):
        if path.name != "helper.py":
            os.chown(path, 65534, -1)
    submission = read_submission("alice", work)
    assert "helper.py" not in submission.modules
    assert submission.look == ("exercises/helper.py is a hard link to another user's file, and was left out",)
    with opening.opened(work) as opened, pytest.raises(contents.Unusable):
        contents.read(opened, PurePosixPath("exercises/helper.py"), 100)  # linked after it was looked at


def test_a_zip_cannot_lead_out_of_itself(work: Path, tmp_path: Path):
    packed = zipped(work, tmp_path / "alice.zip")
    with zipfile.ZipFile(packed, "a") as archive:
        for name in ("../../exercises/data.py", "/etc/exercises/data.py", "exercises\\..\\..\\x.py", "C:/x.py"):
            archive.writestr(name, "stolen\n")
        link = zipfile.ZipInfo("exercises/link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    submission = read_submission("alice", packed)
    assert set(submission.modules) == FILES
    assert submission.modules["data.py"] == b"# data of alice\n"
    assert "5 files of the zip left out" in submission.remarks[0]
    assert "exercises/link.py" in submission.look[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.zip", "class"]  # nothing was unpacked


def test_a_zip_bomb_costs_no_more_than_the_limit(work: Path, tmp_path: Path):
    packed = zipped(work, tmp_path / "alice.zip")
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        for name in ("exercises/helper.py", "exercises/checkpoint.bin", "notebooks/2_data.ipynb"):
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(64):
                    member.write(bytes(1 << 20))
    submission = read_submission("alice", packed)
    assert submission.modules["helper.py"] == 64 << 20  # its size, for the check to tell
    assert submission.notebooks["notebooks/2_data.ipynb"].remarks == ["is too large to be read (over 50 MB)"]
    with submission.code() as code:
        packed_again = pack(code)  # the sandbox takes it
    assert packed_again["helper.py"] == 64 << 20


def test_names_and_sizes_that_no_disk_has_cost_nothing_but_themselves(work: Path, tmp_path: Path):
    packed = zipped(work, tmp_path / "alice.zip")
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        for name in (
            f"exercises/{'a' * 300}.txt",
            "exercises/x",
            "exercises/x/y.py",
            "exercises/x/y.py/z.py",
            ".",
        ):
            archive.writestr(name, "odd\n")
        archive.writestr(f"notebooks/{'n' * 300}.ipynb", "{}")
        archive.writestr("exercises/big.py", bytes(MAX_MODULE_BYTES + 1))
    data = packed.read_bytes()
    size = data.rindex(b"PK\x01\x02") + 24  # of big.py, in the table of contents
    packed.write_bytes(data[:size] + (0xFFFFFFF0).to_bytes(4, "little") + data[size + 4 :])
    submission = read_submission("alice", packed)
    assert set(submission.modules) == {*FILES, "x/y.py/z.py", "big.py"}
    assert set(submission.notebooks) == {"notebooks/1_model.ipynb"}
    assert any(
        remark.startswith("5 files of the zip left out: with a name of over") for remark in submission.remarks
    )
    assert submission.modules["big.py"] == MAX_SIZE
    with submission.code() as code:
        assert (code / "big.py").stat().st_size == MAX_SIZE


def test_a_table_of_contents_without_end_is_not_read(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    packed = zipped(work, tmp_path / "alice.zip")
    monkeypatch.setattr(archives.BoundedReader, "limit", 400)
    submission = read_submission("alice", packed)
    assert submission.modules == {}
    assert "its table of contents has more than" in submission.unread


@pytest.mark.parametrize("damage", ["not a zip", "cut off", "a byte changed", "encrypted"])
def test_a_damaged_zip_is_a_remark(work: Path, tmp_path: Path, damage: str):
    packed = zipped(work, tmp_path / "alice.zip")
    data = bytearray(packed.read_bytes())
    if damage == "not a zip":
        data = bytearray(b"hello")
    elif damage == "cut off":
        data = data[: len(data) // 2]
    elif damage == "a byte changed":
        data[60] ^= 0xFF
    else:  # the flag of every entry, in its own header and in the directory
        for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = data.find(mark)
            while at >= 0:
                data[at + offset] |= 1
                at = data.find(mark, at + 1)
    packed.write_bytes(data)
    submission = read_submission("alice", packed)
    assert submission.remarks
    assert submission.unread or submission.look  # of 0 points an instructor has to know
    assert not set(submission.modules) - FILES
    if damage == "encrypted":
        assert submission.look[0].startswith("the zip needs a password, without which nobody reads exercises/")
        assert submission.unread.endswith("what was sent: nothing that can be read")


@pytest.mark.parametrize("by", ["shutil", "a stream", "stored"])
def test_of_a_zip_that_is_cut_off_what_is_whole_is_graded_and_told(work: Path, tmp_path: Path, by: str):
    packed = tmp_path / "alice.zip"
    if by == "shutil":
        zipped(work, packed)
    else:
        with packed.open("wb") as file:
            file.seekable = lambda: by == "stored"  # type: ignore[method-assign]
            kind = zipfile.ZIP_STORED if by == "stored" else zipfile.ZIP_DEFLATED
            with zipfile.ZipFile(file, "w", kind) as archive:
                for name in sorted(FILES):
                    archive.write(work / "exercises" / name, f"exercises/{name}")
    whole = read_submission("alice", packed)
    data = packed.read_bytes()
    at = data.index(b"exercises/model.py") + len("exercises/model.py") + 5
    packed.write_bytes(data[:at])
    found = read_submission("alice", packed)
    assert set(found.modules) == {name for name in FILES if data.index(f"exercises/{name}".encode()) < at} - {
        "model.py"
    }
    assert {name: whole.modules[name] for name in found.modules} == found.modules != {}
    [said] = [one for one in found.look if "alice.zip is no zip file" in one]
    assert "what is whole of it was read: exercises/data.py" in said
    assert said.endswith("; not exercises/model.py, and what came behind")
    assert found.remarks.count(said) == 1
    packed.write_bytes(data[: data.index(b"PK\1\2")])  # the table of contents alone is lost
    assert read_submission("alice", packed).modules == whole.modules
    packed.write_bytes(data[:20])
    assert read_submission("alice", packed).unread.startswith("alice.zip is no zip file that can be read: ")


def test_a_bomb_in_a_zip_that_is_cut_off_costs_no_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packed = tmp_path / "alice.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"exercises/data{number}.py", bytes(100_000))
    packed.write_bytes(packed.read_bytes()[:-30])
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 250_000)
    assert "unpacked it has more than" in read_submission("alice", packed).unread
    monkeypatch.setattr(cut_off, "MAX_NOTEBOOK_BYTES", 90_000)
    assert read_submission("alice", packed).unread.startswith("alice.zip is no zip file that can be read: File is")


def test_a_zip_alone_in_a_student_s_folder_is_the_submission(work: Path, tmp_path: Path):
    for name in ("bob", "eve", "zoe"):
        (tmp_path / "lms" / name).mkdir(parents=True)
        zipped(work, tmp_path / "lms" / name / "my-lab.zip")
    (tmp_path / "lms" / "eve" / "notes.txt").write_text("two files\n")
    (tmp_path / "lms" / "zoe" / "my-lab.zip").unlink()
    (tmp_path / "lms" / "zoe" / "my-lab.zip").symlink_to(tmp_path / "lms" / "bob" / "my-lab.zip")
    found = {student: path.name for student, path in find_submissions(tmp_path / "lms").items()}
    assert found == {"bob": "my-lab.zip", "eve": "eve", "zoe": "zoe"}


def test_the_sandbox_takes_whatever_is_read(work: Path):
    deep = work / "exercises"
    for number in range(20):
        deep = deep / f"d{number}"
        deep.mkdir()
        (deep / "x.py").write_text("1\n")
    for number in range(700):
        (work / "exercises" / f"helper{number:03}.py").write_text("1\n")
    (work / "exercises" / "big.py").write_bytes(b"#" * (MAX_MODULE_BYTES + 1))
    submission = read_submission("alice", work)
    assert any("rest left out" in remark for remark in submission.remarks)
    assert set(submission.modules) >= FILES  # never the modules themselves
    with submission.code() as code:
        pack(code)


def test_names_that_are_no_text_can_be_written_everywhere(work: Path, tmp_path: Path):
    folder = os.fsdecode(os.fsencode(work.parent) + b"/b\xff\xfeb")
    os.rename(work, folder)
    Path(folder, "exercises", os.fsdecode(b"\xff.py")).write_text("1\n")
    [(student, path)] = find_submissions(work.parent).items()
    assert student == r"b\udcff\udcfeb"
    submission = read_submission(student, path)
    assert set(submission.modules) > FILES
    with submission.code() as code:
        pack(code)
    store.save(tmp_path / "out", SubmissionRecord(student, submission.key, ()))
    assert store.load(tmp_path / "out", student) is not None


def test_a_folder_that_cannot_be_opened_is_a_remark_not_an_error(work: Path, monkeypatch: pytest.MonkeyPatch):
    def no_descriptors(*args: object, **options: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", no_descriptors)
    submission = read_submission("alice", work)
    assert submission.unread.startswith("could not read ")
    assert any("data.py cannot be read: Too many open files" in remark for remark in submission.remarks)


def test_students_are_found_by_folder_or_zip_and_never_twice(work: Path):
    zipped(work, work.parent / "bob.zip")
    (work.parent / "notes.txt").write_text("")
    (work.parent / ".hidden").mkdir()
    assert list(find_submissions(work.parent)) == ["alice", "bob"]
    zipped(work, work.parent / "alice.zip")
    with pytest.raises(UserError, match=r"alice is there twice \(alice, alice.zip\)"):
        find_submissions(work.parent)
    (work.parent / "alice.zip").unlink()
    (work.parent / "bob").mkdir()
    zipped(work, work.parent / "bob" / "my-lab.zip")
    with pytest.raises(UserError, match=r"bob is there twice \(bob/my-lab.zip, bob.zip\)"):
        find_submissions(work.parent)
    with pytest.raises(UserError, match="holds no submission"):
        find_submissions(work / "exercises")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        find_submissions(work / "nowhere")


def test_in_nbgraders_submitted_folder_only_this_assignment_is_read(work: Path, monkeypatch: pytest.MonkeyPatch):
    submitted = work.parent.parent / "submitted"
    shutil.copytree(work, submitted / "alice" / "lab")
    (submitted / "alice" / "other" / "exercises").mkdir(parents=True)
    (submitted / "alice" / "other" / "exercises" / "data.py").write_text("x = 1\n")
    [path] = find_submissions(submitted).values()
    monkeypatch.chdir(submitted)
    assert [found.resolve() for found in find_submissions(Path(".")).values()] == [path]
    submission = read_submission("alice", path)
    assert submission.remarks == ()
    assert submission.key == read_submission("alice", work).key


def test_the_key_changes_with_any_byte_and_only_then(work: Path):
    before = read_submission("alice", work).key
    (work / "exercises" / "data.py").touch()
    assert read_submission("alice", work).key == before
    (work / "exercises" / "data.py").write_text("# data of alice \n")
    changed = read_submission("alice", work).key
    (work / "exercises" / "new.py").write_text("")
    assert len({before, changed, read_submission("alice", work).key}) == 3
