"""Answers wherever a student wrote them: beside their cells, in files without ids, in damaged and in old ones."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import class_kinds
import nbformat
import pytest
from class_kinds import code_cell, find, read_book, say, write_book

from lab.course import notebooks
from lab.course.assess import record
from lab.course.books import released_books
from lab.course.build import course_files
from lab.course.clean import markdown2html
from lab.course.grafting import answer, graft, structure
from lab.course.marks import SubmissionRecord
from lab.course.sent.comments import answers_in
from lab.course.sent.damaged import cells_of, without_outputs
from lab.course.submissions import read_submission

MODEL, SETUP = "1_model.ipynb", "2_distributed_setup.ipynb"
SHAPE = "answer-why-shape"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(50)).decode()
OTHER = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return class_kinds.released(tmp_path / "alice")


def graded(folder: Path) -> SubmissionRecord:
    return record(read_submission("alice", folder), [], 180.0, 0.0)


def said(folder: Path, name: str = SHAPE) -> str | None:
    """What whoever marks sees."""
    for book, cells in released_books().items():
        for cell in cells:
            if cell.grade_id == name:
                return answer(graded(folder), name, book, cell.placeholder)
    raise KeyError(name)


def all_said(folder: Path) -> dict[str, str]:
    found = graded(folder)
    return {
        cell.grade_id: text
        for book, cells in released_books().items()
        for cell in cells
        if cell.is_answer and (text := answer(found, cell.grade_id, book, cell.placeholder)) is not None
    }


def text_cell(source: str, kind: str = "markdown", **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def insert(folder: Path, *cells: dict[str, Any], book: str = MODEL, before: str = SHAPE, by: int = 1) -> None:
    notebook = read_book(folder, book)
    at = find(notebook, before) + by
    notebook["cells"][at:at] = cells
    write_book(folder, book, notebook)


def test_as_given_out_nothing_is_an_answer(folder: Path):
    assert all_said(folder) == {}
    found = graded(folder)
    assert (found.look, found.remarks) == ((), ())


def test_as_nbgrader_gives_it_out_nothing_is_an_answer_either(folder: Path):
    """There the links lead elsewhere."""
    for path, content in course_files().items():
        if path.match("source/lab/*.ipynb"):
            (folder / path.name).write_bytes(content)
    assert all_said(folder) == {}
    assert graded(folder).look == ()


def test_text_that_an_earlier_release_gave_out_is_nobodys(folder: Path):
    first = (
        "already. They have no BatchNorm and no dropout, so that many ranks compute exactly what one device would;"
    )
    insert(folder, text_cell(f"{first} you will see in\nsection 4 what that is good for."))
    assert all_said(folder) == {}
    assert graded(folder).remarks == ()
    insert(folder, text_cell("section 4 what that is good for. For nothing."))
    assert list(all_said(folder)) == [SHAPE]


@pytest.mark.parametrize(
    "cell",
    [
        text_cell("The batch differs."),
        text_cell("The batch differs.", "raw"),
        code_cell("# The batch differs.\n"),
        code_cell("x = 3  # no answer\n# The batch differs."),
        code_cell('"""The batch differs."""'),
        code_cell("The batch differs, as I said above"),
        code_cell('x = 3  # no answer\nprint("The batch differs.")'),
        code_cell('said = """The batch\ndiffers by rank."""\nprint(said)  # no answer'),
        code_cell('%%time\ndisplay(Markdown("The batch differs."))'),
        text_cell("The batch differs.", "heading"),
    ],
    ids=[
        "markdown",
        "raw",
        "comment",
        "comment beside code",
        "quoted",
        "prose",
        "printed",
        "named",
        "shown",
        "old",
    ],
)
def test_text_in_a_new_cell_below_the_placeholder_is_the_answer(folder: Path, cell: dict[str, Any]):
    insert(folder, cell)
    assert list(all_said(folder)) == [SHAPE]
    assert "The batch differs" in " ".join((said(folder) or "").split())
    assert "no answer" not in (said(folder) or "")


@pytest.mark.parametrize("text", ["42", "7 GB", "x = 2"])
def test_the_shortest_answer_is_one(folder: Path, text: str):
    insert(folder, text_cell(text))
    assert said(folder) == text


def test_a_comment_in_a_check_s_own_cell_is_shown_with_the_question_before_it(folder: Path):
    notebook = read_book(folder, "3_data.ipynb")
    cell = notebook["cells"][find(notebook, "check-3-2")]
    cell["source"] = "".join(cell["source"]) + "\n# Half a file."
    write_book(folder, "3_data.ipynb", notebook)
    assert all_said(folder) == {"answer-sync-after-download": "```\n# Half a file.\n```"}


def test_an_answer_that_goes_on_in_the_next_cell_is_shown_in_order(folder: Path):
    say(folder, MODEL, SHAPE, "Zeroth, the batch.")
    insert(folder, text_cell("And then the rest."))
    text = said(folder) or ""
    assert text.index("Zeroth") < text.index("And then")


def test_an_answer_before_its_cell_or_in_the_question_s_own_is_found(folder: Path):
    insert(folder, text_cell("Between question and cell."), by=0)
    assert said(folder) == "Between question and cell."
    notebook = read_book(folder, SETUP)
    at = find(notebook, "answer-why-local-rank") - 1
    notebook["cells"][at]["source"] = "".join(notebook["cells"][at]["source"]) + "\n\nDevices are counted by node."
    write_book(folder, SETUP, notebook)
    assert said(folder, "answer-why-local-rank") == "Devices are counted by node."


def test_code_and_edited_examples_are_no_answers(folder: Path):
    insert(
        folder,
        code_cell("figures.batch_parts(samples=16, global_batch=8, ranks=2)"),
        code_cell("%%ranks 2\nprint(rank)\nx = [i for i in range(3)]"),
        code_cell("for i in range(3) print(i)  # a typing mistake"),
        code_cell("!ls"),
        code_cell("# figures.batch_parts(samples=16)\nx = 1"),
        code_cell("print('rank', rank)\naxes.set_title('Images per second by ranks')"),
        text_cell("---"),
        text_cell(""),
    )
    assert all_said(folder) == {}


def bare(folder: Path, change: Callable[[dict[str, Any]], None] = lambda notebook: None) -> dict[str, str]:
    """Answers of a perfect student's, in notebooks without metadata and ids."""
    class_kinds.perfect(folder)
    for book in class_kinds.BOOKS:
        notebook = read_book(folder, book)
        for cell in notebook["cells"]:
            cell.pop("id", None)
            cell["metadata"] = {}
        change(notebook)
        write_book(folder, book, notebook)
    return class_kinds.EVERY_ANSWER


def test_notebooks_without_ids_are_read_by_place(folder: Path):
    assert bare(folder) == all_said(folder)
    books = {name: [cell.grade_id for cell in cells] for name, cells in released_books().items()}
    told = structure(graded(folder), books)
    assert not [one for one in told if "deleted" in one]
    assert "1_model.ipynb was saved without the lab's cell names: its answers were found by their place" in told


def test_notebooks_of_nbformat_3_are_read(folder: Path):
    def old(notebook: dict[str, Any]) -> None:
        cells = notebook.pop("cells")
        for cell in cells:
            if cell["cell_type"] == "code":
                cell["input"] = cell.pop("source")
        notebook |= {"nbformat": 3, "worksheets": [{"cells": cells}]}

    assert bare(folder, old) == all_said(folder)


@pytest.mark.parametrize("code", ["utf-16", "utf-8-sig", "utf-32"])
def test_notebooks_in_other_encodings_are_read(folder: Path, code: str):
    say(folder, MODEL, SHAPE, "Größe")
    path = folder / MODEL
    path.write_text(json.dumps(json.loads(path.read_text()), ensure_ascii=False), encoding=code)
    assert said(folder) == "Größe"


def test_another_grade_id_is_read_by_place(folder: Path):
    notebook = read_book(folder, MODEL)
    cell = notebook["cells"][find(notebook, SHAPE)]
    cell["metadata"]["nbgrader"]["grade_id"] = cell["id"] = "answer-why-form"
    cell["source"] = "The batch differs."
    write_book(folder, MODEL, notebook)
    assert said(folder) == "The batch differs."


def test_questions_that_an_instructor_has_added_to_a_course_are_answers_of_their_own(tmp_path: Path):
    folder = class_kinds.released(tmp_path / "course" / "submitted" / "alice" / "lab")
    release = class_kinds.released(tmp_path / "course" / "release" / "lab")
    for place, text in ((release, "*Write here.*"), (folder, "Mine.")):
        own = {"grade_id": "own", "grade": True, "solution": True, "points": 1}
        insert(place, text_cell("A new question?"), text_cell(text, metadata={"nbgrader": own}))
    found = graded(folder)
    assert found.answers["own"] == [(MODEL, "Mine.")]
    assert all_said(folder) == {}  # what the instructor wrote is no student's


@pytest.mark.parametrize("keep", [0.5, 0.97])
def test_a_file_that_is_cut_off_is_read_up_to_there_and_told(folder: Path, keep: float):
    names = [name for name in class_kinds.grade_ids(SETUP) if name.startswith("answer-")]
    for name in names:
        say(folder, SETUP, name, f'An answer, {name}. It has "quotes" and is\nlong.')
    text = (folder / SETUP).read_text()
    cut = text.index("An answer, " + names[-1]) + 30 if keep > 0.9 else int(len(text) * keep)
    (folder / SETUP).write_text(text[:cut])
    found = all_said(folder)
    assert found[names[0]].startswith(f'An answer, {names[0]}. It has "quotes"')
    assert (names[-1] in found) == (keep > 0.9)  # the last one in part
    assert any(f"{SETUP} is damaged" in one and "could still be read" in one for one in graded(folder).look)


def test_a_file_with_marks_of_a_merge_loses_the_damaged_cell_alone(folder: Path):
    say(folder, MODEL, SHAPE, "The batch differs.")
    text = json.dumps(read_book(folder, MODEL), indent=1)
    (folder / MODEL).write_text(text.replace('"# 1 ', '<<<<<<< HEAD\n"# 1 ', 1))
    assert said(folder) == "The batch differs."
    assert any("is damaged" in one for one in graded(folder).look)


def merged(text: str, line: str) -> str:
    """As git leaves both sides of a merge."""
    other = line.replace("Mine", "Yours")
    assert text.count(line) == 1
    return text.replace(line, f"<<<<<<< HEAD\n{line}=======\n{other}>>>>>>> other\n")


@pytest.mark.parametrize("comma", [True, False], ids=["within", "last line"])
def test_both_sides_of_a_merge_are_shown_and_the_question_is_named(folder: Path, comma: bool):
    say(folder, MODEL, SHAPE, ["The batch.\n", "Mine.\n", "The end."] if comma else ["The batch.\n", "Mine."])  # type: ignore[arg-type]
    text = json.dumps(read_book(folder, MODEL), indent=1)
    (folder / MODEL).write_text(merged(text, '    "Mine.\\n",\n' if comma else '    "Mine."\n'))
    assert (said(folder) or "").split() == [
        "The",
        "batch.",
        *(["Mine.", "Yours.", "The", "end."] if comma else ["Mine.", "Yours."]),
    ]
    [look] = graded(folder).look
    assert look.startswith("1_model.ipynb is damaged: ")
    assert f"a merge was not finished (<<<<<<<) in {SHAPE}: what could be read of both sides" in look


def test_a_file_that_holds_nothing_is_to_look_at(folder: Path):
    (folder / MODEL).write_bytes(b"")
    assert any(one.startswith("1_model.ipynb is damaged") for one in graded(folder).look)


def test_outputs_of_any_size_cost_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch):
    say(folder, MODEL, SHAPE, "The batch differs.")
    lists = '{"output_type": "stream", "text": [' + "[]," * 1_500_000 + '"]"]}'
    insert(folder, code_cell("x") | {"outputs": ["HERE"]})
    (folder / MODEL).write_text((folder / MODEL).read_text().replace('"HERE"', lists))
    monkeypatch.setattr(notebooks, "MEMORY", 130 << 20)
    assert said(folder) == "The batch differs."
    with_them = json.dumps({"cells": [{"cell_type": "code", "outputs": [{"text": 'a " ] [ \\'}], "source": "x"}]})
    [cell] = cells_of(without_outputs(with_them.encode()))[0]
    assert cell == {"cell_type": "code", "outputs": [], "source": "x"}


def test_a_notebook_of_their_own_and_text_before_any_question_are_told(folder: Path):
    (folder / "answers.ipynb").write_text(json.dumps({"cells": [text_cell("To 1.1: the batch differs.")]}))
    insert(folder, text_cell("Alice, 4711"), before="check-1-1", by=-5)
    found = graded(folder)
    assert any(
        "answers.ipynb has text that belongs to no question: To 1.1: the batch" in one for one in found.look
    )
    assert any("1_model.ipynb has text that belongs to no question: Alice, 4711" in one for one in found.remarks)
    assert all_said(folder) == {}


def test_a_second_copy_of_a_notebook_shows_what_differs(folder: Path):
    say(folder, MODEL, SHAPE, "First.")
    (folder / "1_model (1).ipynb").write_text((folder / MODEL).read_text().replace("First.", "Corrected."))
    text = said(folder) or ""
    assert "First." in text
    assert "Corrected." in text


def test_pictures_of_all_cells_are_shown_under_names_of_their_own(folder: Path):
    def picture(data: str) -> dict[str, Any]:
        return {"attachments": {"image.png": {"image/png": data}}}

    notebook = read_book(folder, MODEL)
    cell = notebook["cells"][find(notebook, SHAPE)]
    cell |= {"source": "One ![image.png](attachment:image.png)", **picture(PNG)}
    write_book(folder, MODEL, notebook)
    insert(folder, text_cell("Two ![image.png](attachment:image.png)", **picture(OTHER)))
    (folder / "1_model (1).ipynb").write_text((folder / MODEL).read_text().replace("Two ", "Three "))
    found = graded(folder)
    assert found.pictures[SHAPE] == {"image.png": {"image/png": PNG}, "2-image.png": {"image/png": OTHER}}
    text = answer(found, SHAPE, MODEL, "") or ""
    for part in ("One ![image.png](attachment:image.png)", "Two ![image.png](attachment:2-image.png)",
                 "Three ![image.png](attachment:2-image.png)"):  # fmt: skip
        assert part in text
    grafted = nbformat.read(class_kinds.ROOT / "notebooks" / MODEL, 4)
    graft(grafted, found, MODEL)
    [cell] = [cell for cell in grafted.cells if cell.get("attachments")]
    assert cell.attachments == {"picture-1": {"image/png": PNG}, "picture-2": {"image/png": OTHER}}
    assert "One ![image.png](attachment:picture-1)" in cell.source


NAMES = ("plot.png", "Screenshot 2026-11-28 at 10.11.12.png", "größe (1).png")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "form", ["![a](attachment:{})", "![a](attachment:{quoted})", '<img src="attachment:{}" width=9>']
)
def test_pictures_are_shown_whatever_they_are_called(folder: Path, name: str, form: str):
    notebook = read_book(folder, MODEL)
    cell = notebook["cells"][find(notebook, SHAPE)]
    cell |= {"source": "See " + form.format(name, quoted=quote(name)), "attachments": {name: {"image/png": PNG}}}
    write_book(folder, MODEL, notebook)
    grafted = nbformat.read(class_kinds.ROOT / "notebooks" / MODEL, 4)
    graft(grafted, graded(folder), MODEL)
    [cell] = [cell for cell in grafted.cells if cell.get("attachments")]
    assert f'src="data:image/png;base64,{PNG}"' in markdown2html({"cell": cell}, cell.source)
    assert "cannot be shown" not in markdown2html({"cell": cell}, cell.source)


@pytest.mark.parametrize(
    "form", ["![a](data:image/png;base64,{})", '<img alt="a" src="data:image/png;base64,{}">'], ids=["md", "html"]
)
def test_a_picture_written_out_in_the_text_is_no_part_of_its_length(folder: Path, form: str):
    large = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90_000)).decode()
    say(folder, MODEL, SHAPE, f"See {form.format(large)} and so on.")
    grafted = nbformat.read(class_kinds.ROOT / "notebooks" / MODEL, 4)
    graft(grafted, graded(folder), MODEL)
    [cell] = [cell for cell in grafted.cells if cell.get("attachments")]
    assert large in markdown2html({"cell": cell}, cell.source)
    assert cell.source.endswith("and so on.")


def test_a_picture_that_is_nowhere_is_text_and_one_that_is_not_shown_comes_last(folder: Path):
    say(folder, MODEL, SHAPE, "See ![plot](attachment:plot.png) *here*.")
    grafted = nbformat.read(class_kinds.ROOT / "notebooks" / MODEL, 4)
    graft(grafted, graded(folder), MODEL)
    [cell] = [cell for cell in grafted.cells if cell.source.startswith("See")]
    assert cell.source == "See (a picture that was not handed in: plot plot.png) *here*."
    assert "<em>here</em>" in markdown2html({"cell": cell}, cell.source)
    notebook = read_book(folder, MODEL)
    notebook["cells"][find(notebook, SHAPE)]["attachments"] = {"a.png": {"image/png": PNG}}
    write_book(folder, MODEL, notebook)
    graft(grafted := nbformat.read(class_kinds.ROOT / "notebooks" / MODEL, 4), graded(folder), MODEL)
    [cell] = [cell for cell in grafted.cells if cell.get("attachments")]
    assert cell.source.endswith("![a.png](attachment:picture-1)")


CHECKPOINT = ".ipynb_checkpoints/1_model-checkpoint.ipynb"


@pytest.mark.parametrize("place", [CHECKPOINT, "results/x/1_model.ipynb"])
def test_an_answer_that_stands_in_a_folder_that_is_passed_over_alone_is_told(folder: Path, place: str):
    shutil.copytree(folder, folder / "old")  # untouched, as JupyterLab keeps it
    before = read_book(folder, MODEL)
    say(folder, MODEL, SHAPE, "The batch differs.")
    (folder / place).parent.mkdir(parents=True)
    (folder / MODEL).rename(folder / place)
    write_book(folder, MODEL, before)
    assert all_said(folder) == {}
    said = f"{place} lies in a folder that is passed over; it alone answers {SHAPE}: The batch differs."
    assert graded(folder).look == (said,)
    (folder / MODEL).unlink()
    assert graded(folder).look == (said,)
    say_again = before | {"cells": [*before["cells"], text_cell("The batch differs.")]}
    write_book(folder, MODEL, say_again)
    assert graded(folder).look == ()


def test_an_older_answer_in_a_checkpoint_is_no_noise_and_in_another_folder_it_is_told(folder: Path):
    for place in (CHECKPOINT, ".x/1_model.ipynb"):
        say(folder, MODEL, SHAPE, f"Before, {len(place)}.")
        (folder / place).parent.mkdir()
        shutil.copy(folder / MODEL, folder / place)
    say(folder, MODEL, SHAPE, "The batch differs.")
    [said] = graded(folder).look
    assert said.startswith(".x/1_model.ipynb lies in a folder")


def test_an_answer_in_a_checkpoint_comes_into_a_course_too(folder: Path, tmp_path: Path):
    say(folder, MODEL, SHAPE, "The batch differs.")
    (folder / CHECKPOINT).parent.mkdir()
    (folder / MODEL).rename(folder / CHECKPOINT)
    keys = {read_submission("alice", folder, parse=parse).key for parse in (True, False)}
    assert len(keys) == 1
    assert list(read_submission("alice", folder).hidden) == [CHECKPOINT]


OUTPUTS = {
    "stream": {"output_type": "stream", "name": "stdout", "text": ["The batch\n", "The batch differs by rank.\n"]},
    "markdown": {
        "output_type": "display_data",
        "data": {
            "text/markdown": "The batch differs by rank.",
            "text/plain": "<IPython.core.display.Markdown object>",
        },
    },
    "value": {"output_type": "execute_result", "data": {"text/plain": "'The batch differs by rank.'"}},
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("source", ["!cat my-answers", "print(said)", ""], ids=["shell", "code", "emptied"])
def test_an_answer_that_stands_in_an_output_alone_is_told(folder: Path, output: dict[str, Any], source: str):
    insert(folder, code_cell(source) | {"outputs": [output]})
    assert all_said(folder) == {}
    [look] = graded(folder).look
    assert look.startswith(f"1_model.ipynb answers {SHAPE} in the output of a cell alone, which is not used: ")
    assert "The batch differs by rank." in look
    say(folder, MODEL, SHAPE, "The batch differs.")
    assert graded(folder).look == ()


def test_what_programs_put_out_is_no_answer(folder: Path):
    lines = "[METRIC] epoch=1 time=2.0 train_loss=1.0\nTraceback (most recent call last):\nfinished 3 4 5\n"
    stream = {"output_type": "stream", "name": "stdout", "text": lines}
    noise = {"output_type": "stream", "name": "stderr", "text": "UserWarning: that is not a good idea"}
    figure = {
        "output_type": "display_data",
        "data": {"image/png": PNG, "text/plain": "<Figure of size 3 with Axes>"},
    }
    insert(
        folder,
        code_cell("print(x)") | {"outputs": [stream, noise, figure, "x", {"output_type": "error"}]},
        code_cell("figures.batch_parts(samples=3)") | {"outputs": [OUTPUTS["stream"]]},
        code_cell("x = 1") | {"outputs": "none"},
    )
    notebook = read_book(folder, MODEL)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and cell["id"] != "mine":
            cell["outputs"] = [OUTPUTS["stream"]]
    write_book(folder, MODEL, notebook)
    assert graded(folder).look == ()


COMMENTS = (
    "# Answer: The batch\n# differs by rank.\n",
    "def f():\n    # 1.1 The batch differs by rank.\n",
    '"""Antwort: The batch differs by rank."""\n',
    "# The batch differs by rank." + " It does, as everybody says." * 8 + "\n",
)


@pytest.mark.parametrize("comment", COMMENTS, ids=["word", "number", "text", "long"])
def test_an_answer_in_a_comment_of_a_module_is_told_where_the_question_has_none(folder: Path, comment: str):
    path = folder / "exercises" / "model.py"
    path.write_text(
        path.read_text() + "# the batch differs by rank\n\n" + comment + "    x = (\n" * ("def" in comment)
    )
    [look] = graded(folder).look
    assert look.startswith("model.py has text that may be an answer: ")
    assert "The batch differs by rank." in look
    say(folder, MODEL, SHAPE, "The batch differs.")
    assert graded(folder).look == ()


def test_the_reference_has_no_comment_that_may_be_an_answer(folder: Path):
    class_kinds.solve(folder)
    assert graded(folder).look == ()


def test_a_comment_in_the_first_line_of_a_module_is_read_as_any_other():
    assert answers_in("# of alice\n", set()) == []
    assert answers_in("# Question 3: every rank has its own\n# samples\n", set()) == [
        "Question 3: every rank has its own samples"
    ]
