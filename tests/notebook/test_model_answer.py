"""answer(): a model answer for who learns alone, after an own one; nothing of it in a course."""

import json
from pathlib import Path

import pytest

from lab.cli import main


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_GRADING", "1")  # importing it starts nothing
    from lab.notebook import session

    folder = tmp_path / "my-lab"
    assert main(["start", str(folder)]) == 0
    monkeypatch.setattr(session, "HERE", folder / "notebooks")
    monkeypatch.delenv("LAB_GRADING")
    return folder


def write(book: Path, name: str, text: str) -> None:
    content = json.loads(book.read_text())
    for cell in content["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == f"answer-{name}":
            cell["source"] = text
    book.write_text(json.dumps(content))


def test_it_comes_after_an_own_answer(lab: Path, capsys: pytest.CaptureFixture[str]):
    from lab.notebook.model_answer import answer
    from lab.notebook.show import Said

    with pytest.raises(Said, match="write your own answer to 'why-shape' first"):
        answer("why-shape")
    write(lab / "notebooks" / "1_model.ipynb", "why-shape", "  \n")
    with pytest.raises(Said, match="write your own"):
        answer("why-shape")
    write(lab / "notebooks" / "1_model.ipynb", "why-shape", "Batches differ.")
    capsys.readouterr()
    answer("why-shape")
    assert "The first entry is the number of images" in capsys.readouterr().out
    answer()
    listed = capsys.readouterr().out.splitlines()
    assert {"why-shape: answered", "why-local-rank: not yet"} <= set(listed)
    with pytest.raises(Said, match=r"no question 'why': answer\(\) lists them"):
        answer("why")
    (lab / "notebooks" / "1_model.ipynb").write_text("[]")
    with pytest.raises(Said, match="write your own"):
        answer("why-shape")


def test_a_course_has_them_off(lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from lab.notebook import model_answer, session
    from lab.notebook.show import Said

    monkeypatch.setattr(session, "HERE", lab)  # an assignment's notebooks lie beside exercises/
    with pytest.raises(Said, match="ask your instructor"):
        model_answer.answer("why-shape")
    monkeypatch.setattr(session, "HERE", lab / "notebooks")
    monkeypatch.setattr(model_answer, "checkout", lambda: None)  # from a wheel
    with pytest.raises(Said, match="ask your instructor"):
        model_answer.answer()
    monkeypatch.setenv("LAB_GRADING", "1")
    capsys.readouterr()
    model_answer.answer("why-shape")
    assert capsys.readouterr().out == "No model answers while it is graded.\n"
