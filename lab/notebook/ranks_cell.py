"""%%ranks 3: a cell's code on three real ranks, what each has shown side by side, and their collectives."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from lab.base.errors import UserError
from lab.base.words import one_line, printable_lines
from lab.grading.diagnosis import Blocked, Failed, Outcome
from lab.grading.explain import explain
from lab.grading.trace.cell import FILE, code_folder, run_cell, split_output
from lab.grading.trace.picture import Picture, picture
from lab.grading.trace.svg import trace_svg
from lab.grading.trace.text import trace_text
from lab.notebook import session
from lab.notebook.calls import STOPPED
from lab.notebook.card import TEXT_WIDTH, framed, note_card
from lab.notebook.show import Card, Said, Shown, one_sentence
from lab.ranks.reports import GroupResult
from lab.ranks.server import server

MOST_RANKS = 8
TIMEOUT = 20.0  # seconds; a hang in which ranks wait for each other is seen at once


def register() -> None:
    """Teach the notebook `%%ranks`. Without IPython there is nothing to teach."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shell.register_magic_function(ranks, "cell")


@one_sentence
def ranks(line: str, cell: str) -> None:
    """Run the cell on as many ranks as `line` says.

    In it `rank`, `world_size`, `torch`, `dist` (torch.distributed) and `show(label, value)` are there already, and
    the process group is set up. Nothing is left of it afterwards, in the notebook or in the ranks.
    """
    if not line.strip().isdecimal() or not 1 <= int(line) <= MOST_RANKS:
        raise Said(f"%%ranks {line}: how many ranks, from 1 to {MOST_RANKS}? For example %%ranks 3")
    if session.graded_elsewhere():
        print("Not run while it is graded.")
        return
    try:
        compile(f"\n{cell}", FILE, "exec")
    except SyntaxError as error:
        raise Said(f"line {error.lineno} of the cell: {error.msg}") from None
    shown = Shown(note_card(f"on {int(line)} ranks: running …"))
    try:
        session.warm()
        shown.replace(run(int(line), cell))
    except KeyboardInterrupt:
        shown.replace(note_card(STOPPED))
        raise


def run(world_size: int, code: str) -> Card:
    """What became of the ranks, as a card."""
    with tempfile.TemporaryDirectory(prefix="lab-cell-") as folder:
        place = code_folder(Path(folder).resolve(), code)
        try:
            exercises = str(session.code())
        except UserError:
            exercises = ""  # a notebook elsewhere: nothing of a student's to import
        given = {"exercises": exercises}
        result = server().run(run_cell, world_size, code=place, inputs=given, timeout=TIMEOUT, trace=True)
        outcome = None if result.ok else explain(result, exercise="", code=place)
        return _card(result, picture(result, place), outcome, _lines(result, outcome))


def _card(result: GroupResult, drawn: Picture, outcome: Outcome | None, lines: Sequence[tuple[str, str]]) -> Card:
    world_size = len(result.reports)
    said = [split_output(report.output) for report in result.reports]
    table = _table([shown for shown, _ in said])
    printed = [printable_lines(text).strip("\n") for _, text in said]
    title = f"{world_size} rank{'s' * (world_size != 1)}"
    trace = Markup(trace_svg([(title, drawn)], "The collectives of this cell", inline=True)) if drawn.rows else ""
    text = [f"{title}, {result.seconds:.1f} s"]
    text += [f"{label}: {'  '.join(cells)}" for label, cells in table]
    text += [f"rank {rank}: {one}" for rank, one in enumerate(printed) if one]
    text += [f"{name:5}  {sentence}" for name, sentence in lines]
    if drawn.rows:
        text.append(trace_text(drawn, width=TEXT_WIDTH, unicode=True, colour=False))
    return framed(
        "ranks.html",
        title,
        "\n".join(text),
        outcome,
        title=title,
        seconds=result.seconds,
        world_size=world_size,
        table=table,
        printed=printed if any(printed) else (),
        lines=lines,
        trace=trace,
    )


def _table(shown: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, list[str]]]:
    """A row for each label, in the order in which ranks have shown them; the second of a label is another row."""
    rows: dict[tuple[str, int], list[str]] = {}
    for rank, one in enumerate(shown):
        seen: dict[str, int] = {}
        for label, value in one:
            seen[label] = seen.get(label, 0) + 1
            rows.setdefault((label, seen[label]), [""] * len(shown))[rank] = value
    return [(label, cells) for (label, _), cells in rows.items()]


def _lines(result: GroupResult, outcome: Outcome | None) -> list[tuple[str, str]]:
    """Why the ranks did not come to an end: saw, means, look."""
    first = result.first_failed
    if isinstance(outcome, Failed) and outcome.diagnosis.name == "import-failed" and first and first.error:
        # To the checks a cell is a module; here it simply raised.
        error, frame = first.error, first.student_frame
        look = [("look", f"{FILE}:{frame.line}  {frame.text}")] if frame else []
        return [("saw", f"rank {first.rank} raised {error.type}: {one_line(error.message)}"), *look]
    if isinstance(outcome, Failed):
        return list(zip(("saw", "means", "look"), outcome.diagnosis.lines, strict=True))
    if isinstance(outcome, Blocked):
        return [("saw", f"the cell uses exercise {outcome.by}, which is not done yet")]
    return [] if outcome is None else [("saw", outcome.word)]
