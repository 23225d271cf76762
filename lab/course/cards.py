"""How an exercise ended, as HTML and as plain text: in feedback pages and in nbgrader's notebooks.

All that a student or a student's code has written goes through as_html().
"""

from __future__ import annotations

from collections.abc import Callable

from lab.base.words import as_html
from lab.course.marks import ExerciseMark, Finding
from lab.grading.looks import LOOKS

Lines = Callable[[Finding], str]  # how the three lines of a diagnosis are shown

RULES = """
.lab-mark{font:14px/1.5 system-ui,sans-serif;color:#1c1f24;background:#fff;max-width:52rem;margin:8px 0;
padding:10px 14px;border:1px solid #bbb;border-left:6px solid var(--lab-mark,#5f6772);border-radius:4px}
.lab-mark .lab-head{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
.lab-mark .lab-badge{background:var(--lab-mark,#5f6772);color:#fff;font-weight:600;border-radius:4px;padding:0 8px}
.lab-mark .lab-points{margin-left:auto;font-weight:600;white-space:nowrap}
.lab-mark ul{list-style:none;padding:0;margin:6px 0 0}
.lab-mark li{margin:2px 0}
.lab-mark dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 12px;margin:4px 0 6px 20px}
.lab-mark dt{font-weight:600}
.lab-mark dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
.lab-mark dd.lab-code{font:13px/1.5 ui-monospace,monospace}
"""


def points_text(mark: ExerciseMark) -> str:
    """ "8 of 10 points", or that the mark is open."""
    if mark.points is None:
        return f"open, of {mark.of} points"
    return f"{mark.points:g} of {mark.of} points"


def exercise_card(mark: ExerciseMark) -> str:
    """One exercise in a box: outcome, points, and each check with what is wrong."""
    look = LOOKS[mark.word]
    word = f"blocked: {mark.outcome.detail}" if mark.word == "blocked" else mark.word
    head = (
        f'<div class="lab-head"><span class="lab-badge">{look.sign} {as_html(word)}</span>'
        f"<span><strong>{as_html(mark.exercise)}</strong> {as_html(mark.title)}</span>"
        f'<span class="lab-points">{points_text(mark)}</span></div>'
    )
    items = "".join(f"<li>{item}</li>" for item in _items(mark))
    return f'<section class="lab-mark" style="--lab-mark:{look.colour}">{head}<ul>{items}</ul></section>'


def notebook_card(mark: ExerciseMark) -> str:
    """The same for nbgrader's pages: made of the few tags that are left when they are sanitized."""
    sign = LOOKS[mark.word].sign
    word = f"blocked: {mark.outcome.detail}" if mark.word == "blocked" else mark.word
    head = f"<strong>{sign} {as_html(word)}</strong> {as_html(mark.exercise)} {as_html(mark.title)}"
    items = _items(mark, _list)
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f"<div>{head}: <strong>{points_text(mark)}</strong></div><ul>{rows}</ul>"


def exercise_text(mark: ExerciseMark) -> str:
    """The same in plain text."""
    lines = [f"{mark.exercise} {mark.title}: {mark.word}, {points_text(mark)}"]
    for finding in mark.diagnoses:
        lines += [f"  saw    {finding.saw}", f"  means  {finding.means}", f"  look   {finding.look}"]
    return "\n".join(lines)


def _grid(finding: Finding) -> str:
    rows = f"<dt>saw</dt><dd>{as_html(finding.saw)}</dd><dt>means</dt><dd>{as_html(finding.means)}</dd>"
    rows += f'<dt>look</dt><dd class="lab-code">{as_html(finding.look)}</dd>'
    return f"<dl>{rows}</dl>"


def _list(finding: Finding) -> str:
    rows = f"<li><strong>saw</strong>: {as_html(finding.saw)}</li>"
    rows += f"<li><strong>means</strong>: {as_html(finding.means)}</li>"
    rows += f"<li><strong>look</strong>: <code>{as_html(finding.look)}</code></li>"
    return f"<ul>{rows}</ul>"


def _items(mark: ExerciseMark, lines: Lines = _grid) -> list[str]:
    if mark.word == "blocked":
        return [f"It builds on {as_html(mark.outcome.detail)}, which does not pass yet."]
    return [_item(check, lines) for check in mark.checks or (mark.outcome,)]


def _item(finding: Finding, lines: Lines) -> str:
    sign = LOOKS[finding.outcome].sign
    if finding.outcome == "not started":
        return f"Nothing is written at TODO {as_html(finding.detail)} yet."
    if finding.outcome == "lab error":
        return (
            "The lab could not check this: its fault, not the student's. No points are lost; an instructor "
            f"looks at it. {as_html(finding.detail)}"
        )
    if not finding.name:
        return f"{sign} {as_html(finding.title)}"
    return f"{sign} <strong>failed: {as_html(finding.title)}</strong>{lines(finding)}"
