"""What a submission may cost whoever reads it: notebooks of any number and size, mostly of what does not count."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from class_kinds import EVERY_ANSWER

from lab.course import notebooks
from lab.course.assess import record
from lab.course.grafting import graft
from lab.course.marks import SubmissionRecord
from lab.course.sent.measured import make_tables, tables
from lab.course.submissions import read_submission
from lab.sweep.compare import frame

MB = 1 << 20
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()


def answer(text: str, name: str = "answer-why-shape", **more: Any) -> dict[str, Any]:
    nbgrader = {"grade_id": name, "solution": True, "grade": True}
    return {"cell_type": "markdown", "metadata": {"nbgrader": nbgrader}, "source": text, **more}


def book(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": cells, "nbformat": 4})


def packed(folder: Path, books: dict[str, str]) -> Path:
    with zipfile.ZipFile(folder / "eve.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("exercises/data.py", "x = 1\n")
        for name, text in books.items():
            archive.writestr(f"notebooks/{name}", text)
    return folder / "eve.zip"


def marked(path: Path) -> SubmissionRecord:
    return record(read_submission("eve", path), [], 180.0, 0.0)


def texts(found: SubmissionRecord) -> list[str]:
    return [text for _, text in found.answers["answer-why-shape"]]


def test_for_its_key_a_submission_passes_by_piece_by_piece(tmp_path: Path):
    path = packed(tmp_path, {f"{n}.ipynb": book(answer("x")) + " " * (15 * MB) for n in range(3)})
    read_submission("eve", path, parse=False)  # what is loaded once does not count
    tracemalloc.start()
    key = read_submission("eve", path, parse=False).key
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MB
    assert key == read_submission("eve", path).key


def test_a_large_picture_put_out_costs_nobody_the_answers(tmp_path: Path):
    noise = base64.b64encode(random.Random(0).randbytes(5 * MB)).decode()
    shown = {"output_type": "display_data", "data": {"image/png": noise}, "metadata": {}}
    plot = {"cell_type": "code", "metadata": {}, "source": "plot()", "outputs": [shown]}
    found = marked(packed(tmp_path, {"1_model.ipynb": book(plot, answer("Because."))}))
    assert texts(found) == ["Because."]
    assert found.remarks == ()
    assert len(json.dumps(found.to_json())) < 10_000


def test_a_notebook_that_would_take_all_memory_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notebooks, "MEMORY", 300 * MB)
    bomb = '{"cells": [' + "[]," * (4 * MB) + "[]]}"
    found = marked(packed(tmp_path, {"1_model.ipynb": book(answer("Because.")), "2_data.ipynb": bomb}))
    assert texts(found) == ["Because."]
    [said] = found.remarks
    assert said == "notebooks/2_data.ipynb is too large to be read: its 12 MB take over 300 MB of memory"


def test_more_text_than_a_record_holds_does_not_displace_the_released_notebooks(tmp_path: Path):
    others = sorted(EVERY_ANSWER.keys() - {"answer-why-shape"})
    flood = book(*(answer("y" * 40_000, name) for name in others))
    books = {f"{n}.ipynb": flood for n in range(6)} | {"1_model.ipynb": book(answer("Because."))}
    found = marked(packed(tmp_path, books))
    assert texts(found) == ["Because."]
    assert len(json.dumps(found.to_json())) < 3 * notebooks.MAX_TEXT
    assert any("left out in part" in remark for remark in found.remarks)


def test_of_too_many_notebooks_the_released_ones_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    books = {f"0{n}.ipynb": book(answer(f"{n}")) for n in range(60)} | {
        "7_benchmarks.ipynb": book(answer("Mine."))
    }
    assert "Mine." in texts(marked(packed(tmp_path, books)))
    monkeypatch.setattr(notebooks, "MAX_NOTEBOOKS_BYTES", 100)
    found = marked(packed(tmp_path, books))
    assert texts(found) == ["Mine."]
    assert any("the rest was left out" in remark for remark in found.remarks)


def test_no_number_of_damaged_files_makes_a_record_large(tmp_path: Path):
    found = marked(packed(tmp_path, {f"{'n' * 180}{n}.ipynb": "{" for n in range(60)}))
    assert len(json.dumps(found.to_json())) < 50_000


def test_pasted_pictures_come_along_if_they_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notebooks, "MAX_PICTURES", 1000)
    attachments = {
        "a.png": {"image/png": PNG},
        "b.svg": {"image/svg+xml": "PHN2Zy8+"},
        "c.png": {"image/png": base64.b64encode(b"<svg onload=alert(1)>").decode()},
        "d.png": {"image/png": base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(1000)).decode()},
        "e.png": "no types",
    }
    text = "![a](attachment:a.png)"
    found = marked(packed(tmp_path, {"1_model.ipynb": book(answer(text, attachments=attachments))}))
    assert found.pictures == {"answer-why-shape": {"a.png": {"image/png": PNG}}}
    said = " ".join(found.remarks)
    assert all(f"{name} is no PNG or JPEG" in said for name in ("b.svg", "c.png", "e.png"))
    assert "the picture d.png was left out" in said
    assert SubmissionRecord.from_json(json.loads(json.dumps(found.to_json()))) == found

    from nbformat.v4 import new_markdown_cell, new_notebook

    released = new_notebook(cells=[new_markdown_cell("*Your answer.*", metadata=answer("")["metadata"])])
    graft(released, found, "1_model.ipynb")
    assert released.cells[0].attachments == {"picture-1": {"image/png": PNG}}
    assert "(attachment:picture-1)" in released.cells[0].source


@pytest.mark.parametrize("made", [None, [], ["a", "b"], "no list"])
def test_measurements_that_were_sent_are_read_in_the_sandbox_alone(monkeypatch: pytest.MonkeyPatch, made: object):
    def run(function: object, ranks: int, **options: object) -> SimpleNamespace:
        assert (function, options["inputs"]) == (make_tables, [b"sent"])
        return SimpleNamespace(reports=[SimpleNamespace(status="ok" if made else "exited", value=made)])

    monkeypatch.setattr(frame, "load", lambda path: pytest.fail("read outside of the sandbox"))
    found = tables({"results": b"sent"}, SimpleNamespace(run=run))  # type: ignore[arg-type]
    assert found["results"].startswith("results.csv was handed in, but could not be read (")
