"""The feedback page of one student: points, what each check found, remarks, and the answers as they were read."""

from __future__ import annotations

import re

from lab.base.words import as_html
from lab.course import cards
from lab.course.books import Books
from lab.course.grafting import answer, structure
from lab.course.marks import SubmissionRecord
from lab.course.pages import page
from lab.grading.looks import LOOKS

STYLE = """
.strip{display:flex;flex-wrap:wrap;gap:6px;margin:14px 0}
.strip a{border:1px solid #bbb;border-left:6px solid var(--c);border-radius:4px;padding:2px 8px;color:inherit;
text-decoration:none;white-space:nowrap}
.answer{border-left:4px solid #cfd4da;padding-left:12px;margin:14px 0}
"""

CODE = re.compile(r"`([^`]+)`")


def feedback_page(record: SubmissionRecord, books: Books) -> str:
    """The whole page."""
    of = sum(mark.of for mark in record.exercises)
    passed = sum(mark.passed for mark in record.exercises)
    parts = [
        f"<h1>Feedback for {as_html(record.student)}</h1>",
        f"<p><strong>{record.points:g} of {of} points</strong> for the exercises, {passed} of "
        f"{len(record.exercises)} passed. Questions are marked by hand, and not counted here.</p>",
        f'<p class="quiet">Checked by Scaling Lab {as_html(record.lab)}.</p>',
        _strip(record),
    ]
    remarks = [
        *record.remarks,
        *structure(record, {name: [c.grade_id for c in book] for name, book in books.items()}),
    ]
    if remarks or record.to_look:
        items = "".join(f"<li>{as_html(remark)}</li>" for remark in dict.fromkeys([*record.to_look, *remarks]))
        parts.append(f'<h2>About what was handed in</h2><ul class="plain">{items}</ul>')
    parts.append("<h2>Exercises</h2>")
    parts += [f'<div id="e{mark.exercise}">{cards.exercise_card(mark)}</div>' for mark in record.exercises]
    parts += _answers(record, books)
    return page(f"Feedback for {record.student}", parts, STYLE + cards.RULES)


def _strip(record: SubmissionRecord) -> str:
    items = []
    for mark in record.exercises:
        look = LOOKS[mark.word]
        label = f"{mark.exercise} {mark.word}"
        items.append(
            f'<a href="#e{mark.exercise}" style="--c:{look.colour}" title="{label}" aria-label="{label}">'
            f"{look.sign} {mark.exercise}</a>"
        )
    return f'<nav class="strip">{"".join(items)}</nav>'


def _answers(record: SubmissionRecord, books: Books) -> list[str]:
    shown = []
    asked = answered = 0
    for book, cells in books.items():
        for cell in cells:
            if not cell.is_answer:
                continue
            asked += 1
            said = answer(record, cell.grade_id, book, cell.placeholder)
            answered += said is not None
            text = f"<pre>{as_html(said)}</pre>" if said is not None else '<p class="quiet">No answer.</p>'
            question = CODE.sub(r"<code>\1</code>", as_html(" ".join(cell.question.split())))
            shown.append(f'<div class="answer"><p>{question} <span class="quiet">({book})</span></p>{text}</div>')
    if not asked:
        return []
    return [f"<h2>Your answers</h2><p>{answered} of {asked} questions are answered.</p>", *shown]
