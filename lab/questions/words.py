"""A question, and what is said of an answer, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from lab.questions.question import LETTERS, Asked, Judged


def question_lines(asked: Asked) -> list[str]:
    """The question, its code, its options with their letters."""
    lines = [asked.text, *(f"    {line}" for line in asked.code.splitlines())]
    return lines + [f"  {letter})  {option}" for letter, option in zip(LETTERS, asked.options, strict=False)]


def verdict(judged: Judged) -> str:
    """One line."""
    return f"{'✓ right' if judged.right else '✗ not yet'}: {judged.sentence}"


def list_lines(names: Sequence[tuple[int, str]], right: Sequence[str]) -> list[str]:
    """All questions, (section, name), and which were answered rightly."""
    return [f"{section}  {name:18} {'✓' if name in right else '·'}" for section, name in names]
