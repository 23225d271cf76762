"""The trace of an exercise as a card: the ranks' collectives side by side, and of some what they did when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from lab.grading.diagnosis import Passed
from lab.grading.trace.picture import picture, trace_exercise
from lab.grading.trace.svg import trace_svg
from lab.grading.trace.text import trace_text
from lab.grading.trace.timeline import MILLISECONDS, Timeline, record
from lab.notebook.card import TEXT_WIDTH, framed, result_card
from lab.notebook.drawing import FILLS, HALF_WIDTH, Drawing, figure, stepped
from lab.notebook.show import Card
from lab.syllabus.syllabus import Exercise

ROW, CHARACTER = 32, 6.7  # pixels: of a lane, of a letter of the labels
TICKS = 4


def trace_card(exercise: Exercise, code: Path) -> Card:
    """Run the exercise's checks, up to the first that does not pass, and draw their collectives."""
    traced = trace_exercise(exercise, code)
    sections, lines = [], []
    for check in traced:
        for group in check.groups:
            drawn = picture(group, code)
            number = len(group.reports)
            heading = f"{number} rank{'s' * (number != 1)}, {check.title}"
            sections.append((heading, drawn))
            lines += [f"{heading}: {drawn.summary}"]
            if drawn.rows:
                lines.append(trace_text(drawn, width=TEXT_WIDTH, unicode=True, colour=False))
    if not any(drawn.rows for _, drawn in sections):
        return result_card(traced[-1].result, code, None)
    title = f"Collectives in exercise {exercise.id}, {exercise.title}"
    drawing = Markup(trace_svg(sections, title, inline=True))  # it escapes what it writes by itself
    last = traced[-1].result
    if not isinstance(last.outcome, Passed):
        card = result_card(last, code, None)
        return Card(
            f"{framed('card.html', title, '', body=drawing).html}\n{card.html}", "\n".join([*lines, card.text])
        )
    card = framed("card.html", title, "\n".join(lines), last.outcome, body=drawing)
    if not (timelines := record(exercise, code)):
        return card
    when = timeline_figure(timelines, exercise.id)
    return Card(f"{when.html}\n{card.html}", f"{when.text}\n{card.text}")


def timeline_figure(timelines: Sequence[Timeline], exercise: str) -> Card:
    """One below its sentence; of several the reader chooses one."""
    drawings = [_drawn(timeline) for timeline in timelines]
    if len(drawings) == 1:
        return figure(*drawings, caption=timelines[0].said)
    caption = " ".join(f"{timeline.name}: {timeline.said}" for timeline in timelines)
    return stepped(
        drawings, [timeline.name for timeline in timelines], f"trace-{exercise.replace('.', '-')}", caption
    )


def _drawn(timeline: Timeline) -> Drawing:
    said = "; ".join(f"{lane}: {', '.join(span.label for span in timeline.of(lane))}" for lane in timeline.lanes)
    left = 8 + CHARACTER * max(map(len, timeline.lanes))
    scale = (HALF_WIDTH - left - 4) / timeline.end
    foot = 6 + ROW * len(timeline.lanes)
    drawing = Drawing(HALF_WIDTH, foot + (20 if timeline.unit == MILLISECONDS else 0), f"{timeline.name}. {said}.")
    for number, lane in enumerate(timeline.lanes):
        y = 4 + ROW * number
        drawing.text(0, y + 18, lane, size=12)
        for span in timeline.of(lane):
            x, width = left + span.begin * scale, (span.end - span.begin) * scale
            fits = CHARACTER * len(span.label) <= width
            drawing.box(x, y, width, ROW - 6, FILLS[span.kind], span.label if fits else "", size=12)
    if timeline.unit == MILLISECONDS:
        for tick in range(TICKS + 1):
            time = timeline.end * tick / TICKS
            anchor = "end" if tick == TICKS else "middle"
            words = f"{time:.0f} ms" if tick == TICKS else f"{time:.0f}"
            drawing.line(left + time * scale, foot - 2, left + time * scale, foot + 3)
            drawing.text(left + time * scale, foot + 16, words, size=12, anchor=anchor)
    return drawing
