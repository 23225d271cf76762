"""A class as it really is: one of every kind of hand-in, one `lab grade`, one table as a person would want it."""

from __future__ import annotations

import base64
import csv
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import class_kinds
import pytest
from class_kinds import code_cell, find, read_book, say, write_book

from lab.cli import main

pytestmark = pytest.mark.timeout(600)

MODEL, SHAPE, SAID = "1_model.ipynb", "answer-why-shape", "The batch differs."
POINTS = class_kinds.POINTS["model"]["1.1"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(50)).decode()

Make = Callable[[Path], None]
KINDS: dict[str, tuple[Make, float, str, tuple[str, ...]]] = {}  # name -> how, points, answer, what is to look at


def kind(points: float = POINTS, answer: str = SAID, look: tuple[str, ...] = ()) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        KINDS[make.__name__.rstrip("_")] = (make, points, answer, look)
        return make

    return register


def work(folder: Path) -> Path:
    """1.1 done, its question answered; the other modules are no Python, for which no rank is started."""
    class_kinds.released(folder)
    for path in (folder / "exercises").glob("*.py"):
        path.write_text("(\n")
    class_kinds.solve(folder, "model")
    say(folder, MODEL, SHAPE, SAID)
    return folder


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    notebook = read_book(folder, MODEL)
    change(notebook)
    write_book(folder, MODEL, notebook)


def packed(folder: Path, target: Path, at: float = 1e9) -> None:
    """A zip of an ordinary submission, of another time."""
    for path in folder.rglob("*"):
        os.utime(path, (at, at))
    shutil.make_archive(str(target.with_suffix("")), "zip", folder)
    shutil.rmtree(folder)


@kind()
def plain(place: Path) -> None:
    work(place)


@kind()
def tarred(place: Path) -> None:
    with tarfile.open(place.with_suffix(".tar.gz"), "w:gz") as archive:
        archive.add(work(place), "my-lab")
    shutil.rmtree(place)


@kind(0, "", ("is a 7z archive, which is not read",))
def seven(place: Path) -> None:
    place.with_suffix(".7z").write_bytes(b"7z\xbc\xaf\x27\x1c rest")


@kind(0, "", ("homework.rar is a RAR archive",))
def rar(place: Path) -> None:
    place.mkdir()
    (place / "homework.rar").write_bytes(b"Rar!\x1a\x07 rest")


@kind(0, "", ("what was sent: nothing",))
def empty(place: Path) -> None:
    place.mkdir()


@kind(0, "", ("what was sent: paper.pdf",))
def paper(place: Path) -> None:
    place.with_suffix(".pdf").write_bytes(b"%PDF")


@kind()
def loose_1234(place: Path) -> None:
    work(place)
    for number, path in enumerate([*place.glob("*.ipynb"), *place.glob("exercises/*.py")]):
        shutil.move(path, place.parent / f"{place.name}_{number}_{path.name}")
    shutil.rmtree(place)


@kind(look=("to be read by a person: report.docx",))
def nested(place: Path) -> None:
    work(place)
    packed(place, place.parent / "inner" / "my-lab.zip")
    (place.parent / "inner" / "report.docx").write_bytes(b"PK")
    packed(place.parent / "inner", place.with_suffix(".zip"))


@kind(look=("not two_zips.zip/exercises/model.py, which says something else",))
def two_zips(place: Path) -> None:
    work(place)
    (place / "exercises" / "model.py").write_text("x = 1\n")
    packed(place, place.parent / "two_zips.zip")
    work(place)
    packed(place, place.parent / "two_zips (1).zip", 1.1e9)


@kind()
def copied(place: Path) -> None:
    work(place)
    (place / "exercises" / "model.py").rename(place / "exercises" / "model (1).py")
    shutil.copy(class_kinds.ROOT / "exercises" / "model.py", place / "exercises")


@kind()
def beside(place: Path) -> None:
    work(place)
    shutil.copytree(class_kinds.ROOT / "exercises", place / "exercises-original")


@kind(look=("an incomplete set of modules: without data.py, ddp_utils.py",))
def alone(place: Path) -> None:
    work(place)
    for path in (place / "exercises").glob("*.py"):
        if path.name != "model.py":
            path.unlink()


@kind(0, look=("exercises/model.py is a symbolic link", "an incomplete set of modules: without model.py"))
def link(place: Path) -> None:
    work(place)
    (place / "exercises" / "model.py").unlink()
    (place / "exercises" / "model.py").symlink_to(class_kinds.ROOT / "solutions" / "model.py")


@kind()
def utf_16(place: Path) -> None:
    path = work(place) / "exercises" / "model.py"
    path.write_text(path.read_text(), encoding="utf-16")


@kind(0)
def debugger(place: Path) -> None:
    path = work(place) / "exercises" / "model.py"
    path.write_text(
        path.read_text().replace("        assert x.shape", "        breakpoint()\n        assert x.shape")
    )


@kind()
def no_ids(place: Path) -> None:
    def strip(notebook: dict[str, Any]) -> None:
        for cell in notebook["cells"]:
            cell.pop("id")
            cell["metadata"] = {}

    changed(work(place), strip)


@kind(look=("1_model.ipynb is damaged",))
def cut_off(place: Path) -> None:
    path = work(place) / MODEL
    path.write_text(path.read_text()[:-200])


@kind()
def below(place: Path) -> None:
    work(place)
    say(place, MODEL, SHAPE, "*Write your answer here.*")
    changed(place, lambda book: book["cells"].append(code_cell(f"# {SAID}")))


@kind(answer="First.\n\n---\n\n" + SAID)
def twice(place: Path) -> None:
    work(place)
    shutil.copy(place / MODEL, place / "1_model (1).ipynb")
    say(place, MODEL, SHAPE, "First.")


@kind(answer=SAID + " ![plot 1.png](attachment:plot%201.png)")
def picture(place: Path) -> None:
    def paste(notebook: dict[str, Any]) -> None:
        notebook["cells"][find(notebook, SHAPE)] |= {
            "source": SAID + " ![plot 1.png](attachment:plot%201.png)",
            "attachments": {"plot 1.png": {"image/png": PNG}},
        }

    changed(work(place), paste)


@kind(0, look=("work in folders that are passed over, and not used: results/x/model.py",))
def hidden(place: Path) -> None:
    work(place)
    (place / "results" / "x").mkdir(parents=True)
    (place / "exercises" / "model.py").rename(place / "results" / "x" / "model.py")
    shutil.copy(class_kinds.ROOT / "exercises" / "model.py", place / "exercises")


@kind(0, "", ("the zip needs a password", "what was sent: nothing that can be read"))
def password(place: Path) -> None:
    packed(work(place), place.with_suffix(".zip"))
    data = bytearray(place.with_suffix(".zip").read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # of every member, and in the table of contents
        for found in re.finditer(mark, data):
            data[found.start() + flags] |= 1
    place.with_suffix(".zip").write_bytes(data)


@kind(
    look=("half_a_zip.zip is no zip file that can be read: File is not a zip file; what is whole of it was read",)
)
def half_a_zip(place: Path) -> None:
    packed(work(place), place.with_suffix(".zip"))
    data = place.with_suffix(".zip").read_bytes()
    place.with_suffix(".zip").write_bytes(data[: data.index(b"PK\1\2") + 9])


@kind(0, look=("exercises/model.py holds the marks of a merge that was not finished",))
def merge(place: Path) -> None:
    path = work(place) / "exercises" / "model.py"
    path.write_text(f"<<<<<<< HEAD\n{path.read_text()}=======\n>>>>>>> other\n")


@kind(answer="", look=("1_model.ipynb answers answer-why-shape in the output of a cell alone", SAID))
def put_out(place: Path) -> None:
    say(work(place), MODEL, SHAPE, "*Write your answer here.*")
    output = {"output_type": "stream", "name": "stdout", "text": SAID}
    changed(place, lambda book: book["cells"].append(code_cell("!cat mine") | {"outputs": [output]}))


@kind(answer="", look=(f"model.py has text that may be an answer: Answer: {SAID}",))
def comment(place: Path) -> None:
    path = work(place) / "exercises" / "model.py"
    path.write_text(f"{path.read_text()}\n# Answer: {SAID}\n")
    say(place, MODEL, SHAPE, "*Write your answer here.*")


@kind(look=(f"README.md was not used; it says: 1.1: {SAID}", "Antworten was not used; it says: 1.1"))
def texts(place: Path) -> None:
    work(place)
    given = (class_kinds.ROOT / "lab" / "syllabus" / "student_readme.md").read_text()
    (place / "README.md").write_text(f"{given}\n1.1: {SAID}\n")
    (place / "Antworten").write_text(f"1.1: {SAID}\n")


@kind()
def results(place: Path) -> None:
    (work(place) / "results").mkdir()
    shutil.copy(class_kinds.ROOT / "docs" / "results" / "demo" / "results.csv", place / "results")
    (place / "results-batch").mkdir()
    (place / "results-batch" / "results.csv").write_text("no table\n")


def test_every_kind_is_in_one_table_as_a_person_would_want(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place, out = tmp_path / "class", tmp_path / "grades"
    place.mkdir()
    for name, (make, *_) in KINDS.items():
        make(place / name)
    shutil.rmtree(place / "inner", ignore_errors=True)
    assert main(["grade", str(place), "--out", str(out), "--jobs", "2"]) == 0
    rows = {row["student"]: row for row in csv.DictReader((out / "marks.csv").open(encoding="utf-8"))}
    assert {name: float(row["points"]) for name, row in rows.items()} == {
        name: points for name, (_, points, *_) in KINDS.items()
    }
    for name, (_, _, _, look) in KINDS.items():
        for part in look:
            assert part in rows[name]["to_look"]
        assert bool(look) == bool(rows[name]["to_look"]), (name, rows[name]["to_look"])
    answers = csv.DictReader((out / "answers.csv").open(encoding="utf-8"))
    said = {row["student"]: row["answer"] for row in answers if row["question"] == "why-shape"}
    plain_text = {name: text.removeprefix("```\n# ").removesuffix("\n```") for name, text in said.items()}
    several = "*(This question was answered in several cells; here are all of them.)*\n\n---\n\n"
    assert {name: text.replace("'---", "---").replace(several, "") for name, text in plain_text.items()} == {
        name: answer for name, (_, _, answer, _) in KINDS.items()
    }
    pages = {name: (out / "feedback" / f"{name}.html").read_text() for name in KINDS}
    assert not [name for name, page in pages.items() if "lab reset" in page]
    assert "breakpoint()" in pages["debugger"]
    assert PNG in pages["picture"]
    assert "efficiency" in pages["results"]
    assert "the results.csv that was handed in shows nothing" in pages["results"]
    assert not [name for name, page in pages.items() if "was deleted" in page and name != "cut_off"]
