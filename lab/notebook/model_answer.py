"""answer("why-shape"): a model answer, for somebody who learns alone and has written an answer of their own.

The model answers are in the lab's repository only. A course has them off: its notebooks lie beside exercises/, or
its lab comes from a wheel, which has none.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from lab.base.paths import checkout, student_sources
from lab.notebook import session
from lab.notebook.card import framed
from lab.notebook.show import Said, Shown, one_sentence


@one_sentence
def answer(name: str | None = None) -> None:
    """A model answer to a question, once your own is written and saved; without a name: all questions."""
    if session.graded_elsewhere():
        print("No model answers while it is graded.")
        return
    root = checkout()
    guide = root / "notebooks" / "source" / "marking_guide.toml" if root else None
    if guide is None or not guide.is_file() or (session.HERE / "exercises").is_dir():
        raise Said(
            "model answers are for people who learn alone, from the lab's repository: here, ask your instructor"
        )
    entries = tomllib.loads(guide.read_text(encoding="utf-8"))
    written = own_answers(session.HERE)
    if name is None:
        lines = [f"{one}: {'answered' if one in written else 'not yet'}" for one in entries]
        Shown(
            framed(
                "answers.html", "questions", "\n".join(lines), questions=[(one, one in written) for one in entries]
            )
        )
        return
    if name not in entries:
        raise Said(f"there is no question {name!r}: answer() lists them")
    if name not in written:
        raise Said(
            f"write your own answer to {name!r} first, in the cell below its question, and save the notebook"
        )
    entry = entries[name]
    text = f"{entry['question']}\n{entry['answer']}"
    Shown(
        framed(
            "answers.html",
            f"model answer: {name}",
            text,
            questions=(),
            question=entry["question"],
            answer=entry["answer"],
        )
    )


def own_answers(folder: Path) -> set[str]:
    """Names of the questions that the saved notebooks of this folder answer."""
    found = set()
    for book in sorted((student_sources() / "notebooks").glob("*.ipynb")):
        placeholders = _answer_cells(book)
        mine = _answer_cells(folder / book.name)
        found |= {name for name, text in mine.items() if text and text != placeholders.get(name, text)}
    return found


def _answer_cells(book: Path) -> dict[str, str]:
    """Name of a question -> the text of its answer cell; nothing where the notebook cannot be read."""
    try:
        cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
        named = [(str(cell["metadata"].get("nbgrader", {}).get("grade_id", "")), cell["source"]) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {
        name.removeprefix("answer-"): "".join(text).strip() for name, text in named if name.startswith("answer-")
    }
