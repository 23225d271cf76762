"""The trace of an exercise as a card: the ranks' collectives side by side."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from lab.grading.diagnosis import Passed
from lab.grading.trace.picture import picture, trace_exercise
from lab.grading.trace.svg import trace_svg
from lab.grading.trace.text import trace_text
from lab.notebook.card import TEXT_WIDTH, framed, result_card
from lab.notebook.show import Card
from lab.syllabus.syllabus import Exercise


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
    return framed("card.html", title, "\n".join(lines), last.outcome, body=drawing)
