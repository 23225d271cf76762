"""The progress strip: all exercises in a row, from the cache of what was found last."""

from __future__ import annotations

from pathlib import Path

from lab.base.words import as_html
from lab.grading.diagnosis import Blocked, Failed, NotStarted, Passed
from lab.grading.looks import LOOKS, TO_CHECK
from lab.notebook.card import file_link, framed
from lab.notebook.show import Card
from lab.student import progress
from lab.syllabus.paths import student_folder
from lab.syllabus.syllabus import Exercise, Syllabus, syllabus

FOUND = {Passed.word, Failed.word, NotStarted.word, Blocked.word}  # the lab's own fault is to be checked again

STYLE = """<style>
.lab-strip{display:flex;flex-wrap:wrap;gap:6px;padding:0!important;margin:8px 0 0;list-style:none}
.lab-strip li{list-style:none!important;margin:0;min-width:5.2em;
border:1px solid var(--jp-border-color1,#bbb);border-top:5px solid var(--lab-mark);
border-radius:4px;padding:2px 8px;text-align:center}
.lab-strip b{display:block}
</style>"""


def states(code: Path, of: Syllabus) -> dict[str, str]:
    """Exercise id -> passed, failed, blocked, not started, to check."""
    entries = progress.read(student_folder(code))
    return {exercise.id: _state(exercise, code, entries.get(exercise.id, {})) for exercise in of.exercises}


def strip_card(code: Path, of: Syllabus | None = None) -> Card:
    of = of or syllabus()
    state = states(code, of)
    passed = [exercise for exercise in of.exercises if state[exercise.id] == Passed.word]
    points = sum(exercise.points for exercise in passed)
    summary = f"{len(passed)} of {len(of.exercises)} exercises passed, {points} of {of.points} points"
    items, lines = [], []
    for exercise in of.exercises:
        word = state[exercise.id]
        look = LOOKS[word]
        items.append(
            f'<li style="--lab-mark:{look.colour}" title="{as_html(exercise.title)}">'
            f"<b>{exercise.id}</b>{look.sign} {word}</li>"
        )
        lines.append(f"{exercise.id:4} {exercise.title:33} {look.sign} {word}")
    parts = [STYLE, f"<div><strong>{summary}</strong></div>", f'<ol class="lab-strip">{"".join(items)}</ol>']
    following = progress.unfinished(student_folder(code), code, of)
    if following:
        where = f"Next: {following.id} {following.title}"
        parts.append(f"<p>{as_html(where)}, in {file_link(following, code)}.</p>")
        lines.append(f"{where}, in {code.name}/{following.file}")
    return framed("progress", parts, "\n".join([summary, *lines]))


def _state(exercise: Exercise, code: Path, entry: dict[str, str]) -> str:
    if progress.is_stub(exercise, code):
        return NotStarted.word
    if entry.get("module") == progress.module_hash(code / exercise.file) != "" and entry.get("outcome") in FOUND:
        return entry["outcome"]
    return TO_CHECK
