"""Cards: the result of an exercise, a hint, a note. Everything that others have written is escaped."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

from lab.base.words import as_html
from lab.grading.diagnosis import Blocked, Failed, LabError, NotStarted, Outcome, Passed
from lab.grading.feedback import OUTPUT_CHARACTERS, OUTPUT_LINES, Feedback
from lab.grading.looks import LOOKS
from lab.grading.suite import CheckResult, ExerciseResult
from lab.notebook import session
from lab.notebook.show import Card
from lab.syllabus.syllabus import Exercise

TEXT_WIDTH = 88

# JupyterLab's own colours, which follow its theme; elsewhere those behind the comma.
STYLE = """<style>
.lab-card{font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:14px;line-height:1.5;max-width:46rem;
color:var(--jp-ui-font-color1,#1c1f24);background:var(--jp-layout-color1,#fff);margin:4px 0;padding:10px 14px;
border:1px solid var(--jp-border-color1,#bbb);border-left:6px solid var(--lab-mark,#5f6772);border-radius:4px}
.lab-card p,.lab-card ul,.lab-card dl,.lab-card pre{margin:6px 0 0}
.lab-card ul{list-style:none;padding:0!important}
.lab-card .lab-badge{display:inline-block;background:var(--lab-mark,#5f6772);color:#fff;font-weight:600;
border-radius:4px;padding:0 8px;margin-right:8px}
.lab-card .lab-quiet{color:var(--jp-ui-font-color2,#565d66)}
.lab-card dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;padding-left:20px}
.lab-card dt{font-weight:600}.lab-card dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
.lab-card dd.lab-code,.lab-card pre{font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:13px}
.lab-card pre{white-space:pre-wrap;overflow-wrap:anywhere;max-height:20em;overflow:auto;
background:var(--jp-layout-color2,#f3f4f6);color:inherit;padding:6px 10px}
.lab-card pre.lab-table{white-space:pre;max-height:none;font-size:12px}
.lab-card summary{cursor:pointer;margin-top:6px}
.lab-card code{font-family:var(--jp-code-font-family,ui-monospace,monospace);color:inherit;
background:var(--jp-layout-color2,#f3f4f6);padding:0 4px}
.lab-card a{color:var(--jp-content-link-color,#0b57d0);text-decoration:underline}
</style>"""


def result_card(result: ExerciseResult, code: Path, following: Exercise | None) -> Card:
    """How the checks of one exercise ended.

    Args:
        code: the folder of the student's modules.
        following: the exercise that is next, if it is known.
    """
    exercise, outcome = result.exercise, result.outcome
    word = f"blocked: {outcome.by}" if isinstance(outcome, Blocked) else outcome.word
    sign = LOOKS[outcome.word].sign
    parts = [
        f'<div><span class="lab-badge">{sign} {as_html(word)}</span>'
        f"<strong>{exercise.id}</strong> {as_html(exercise.title)} "
        f'<span class="lab-quiet">· {result.seconds:.1f} s</span></div>',
        *_details(result, code),
        *_go_on(result, code, following),
    ]
    text = _text(result, code)
    if isinstance(outcome, Failed):
        text += f'\nStuck? hint("{exercise.id}")'
    return framed(f"{exercise.id}: {word}", parts, text, outcome)


def hint_card(exercise: Exercise, numbers: Iterable[int]) -> Card:
    """Some hints of an exercise, counted from 1."""
    numbers, count = list(numbers), len(exercise.hints)
    parts = [f"<div><strong>{exercise.id}</strong> {as_html(exercise.title)}</div>"]
    lines = [f"{exercise.id}  {exercise.title}"]
    for number in numbers:
        words = exercise.hints[number - 1]
        parts.append(f'<p><span class="lab-quiet">Hint {number} of {count}.</span> {as_html(words)}</p>')
        lines.append(f"  hint {number} of {count}: {words}")
    if numbers[-1] < count:
        left = f'{count - numbers[-1]} more: run hint("{exercise.id}") again.'
        parts.append(f'<p class="lab-quiet">{as_html(left)}</p>')
        lines.append(left)
    return framed(f"hints for {exercise.id}", parts, "\n".join(lines))


def note_card(text: str) -> Card:
    """One line."""
    return framed(text, [f'<div class="lab-quiet">{as_html(text)}</div>'], text)


def framed(label: str, parts: Iterable[str], text: str, outcome: Outcome | None = None) -> Card:
    """A card around pieces of HTML; the outcome gives the colour of its edge."""
    mark = f' style="--lab-mark:{LOOKS[outcome.word].colour}"' if outcome else ""
    body = "\n".join(parts)
    return Card(
        f'{STYLE}\n<div class="lab-card" role="group" aria-label="{as_html(label)}"{mark}>\n{body}\n</div>', text
    )


def file_link(exercise: Exercise, code: Path) -> str:
    """The file of an exercise as a link, which JupyterLab opens beside the notebook."""
    path = os.path.relpath(code / exercise.file, session.HERE)
    return f'<a href="{as_html(path)}">{as_html(code.name)}/{exercise.file}</a>'


def _details(result: ExerciseResult, code: Path) -> list[str]:
    if isinstance(result.outcome, Blocked):
        return [f"<p>It builds on {as_html(result.outcome.by)}: get that one to pass first.</p>"]
    if not result.checks:
        return [f"<ul>{_explained(result.exercise, result.outcome, '', code)}</ul>"]
    items: list[str] = []
    said: list[Outcome] = []
    for one in result.checks:
        again = one.outcome in said and isinstance(one.outcome, Failed)
        items.append(_explained(result.exercise, one.outcome, one.title, code, again=again))
        said.append(one.outcome)
    return [f"<ul>{''.join(items)}</ul>", *_outputs(result.checks)]


def _explained(exercise: Exercise, outcome: Outcome, title: str, code: Path, *, again: bool = False) -> str:
    """One check as a list item."""
    sign = LOOKS[outcome.word].sign
    if isinstance(outcome, Passed):
        return f"<li>{sign} {as_html(title)}</li>"
    if isinstance(outcome, Failed):
        lead = f"<li>{sign} <strong>{as_html(f'failed: {title}' if title else outcome.word)}</strong>"
        if again:
            return f"{lead}, for the same reason</li>"
        saw, means, look = (as_html(line) for line in outcome.diagnosis.lines)
        rows = f"<dt>saw</dt><dd>{saw}</dd><dt>means</dt><dd>{means}</dd>"
        rows += f'<dt>look</dt><dd class="lab-code">{look}</dd>'
        return f"{lead}<dl>{rows}</dl></li>"
    if isinstance(outcome, NotStarted):
        todo = as_html(outcome.region or exercise.id)
        place = f"<strong>TODO {todo}</strong> in {file_link(exercise, code)}"
        return f"<li>Look for {place}, write what it asks for, and save the file.</li>"
    if isinstance(outcome, LabError):
        details = f"<details><summary>Details</summary><pre>{as_html(outcome.details)}</pre></details>"
        return (
            f"<li>{sign} <strong>The lab's fault, not yours; it costs you no points.</strong> "
            f"{as_html(outcome.text)} <code>lab doctor</code> in a terminal looks whether it is this machine."
            f"{details if outcome.details else ''}</li>"
        )
    return f"<li>{sign} It builds on {as_html(outcome.by)}: get that one to pass first.</li>"


def _outputs(checks: Iterable[CheckResult]) -> list[str]:
    """What the student's code has printed, folded away."""
    printed = []
    for check in checks:
        for rank, text in check.outputs:
            lines = text[-OUTPUT_CHARACTERS:].splitlines()[-OUTPUT_LINES:]
            cut = len(text) > OUTPUT_CHARACTERS or len(text.splitlines()) > OUTPUT_LINES
            printed.append(f"rank {rank}:{' (only the end is shown)' if cut else ''}")
            printed += lines
    if not printed:
        return []
    shown = as_html("\n".join(printed))
    return [f"<details><summary>What your code printed</summary><pre>{shown}</pre></details>"]


def _go_on(result: ExerciseResult, code: Path, following: Exercise | None) -> list[str]:
    if isinstance(result.outcome, Failed):
        return [f'<p class="lab-quiet">Stuck? Run <code>hint("{result.exercise.id}")</code> in a cell.</p>']
    if not isinstance(result.outcome, Passed) or following is None:
        return []
    elsewhere = f" (section {following.section})" if following.section != result.exercise.section else ""
    return [
        f'<p class="lab-quiet">Next{elsewhere}: {following.id} {as_html(following.title)}, '
        f"in {file_link(following, code)}.</p>"
    ]


def _text(result: ExerciseResult, code: Path) -> str:
    """As in the terminal, for programs that show no HTML."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="utf-8")
    feedback = Feedback(stream, code, width=TEXT_WIDTH, colour=False, cwd=session.HERE)
    feedback.result(result)
    feedback.details(result)
    return buffer.getvalue().decode("utf-8").rstrip("\n")
