"""Answers that a student wrote into a module, as comments or texts: a person is told of them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection

from lab.course.sent.places import WORDS, plain

# How a comment begins that is meant as an answer: with a word for it, or a question's number.
MEANT = re.compile(
    r"\W*(?:(?:my|the|to|for|meine|zur?|die)\s+)?"
    r"(?:(?:answers?|questions?|antwort(?:en)?|frage|réponse|respuesta|pregunta|risposta|domanda)\b|[qf]?\d\.\d)",
    re.IGNORECASE,
)
LONG = 40  # words of a comment that is more than a note
FEW = 3  # and of one that may say anything


def answers_in(source: str, given: Collection[str]) -> list[str]:
    """Comments and texts that may be answers; lines that were given out are left away.

    Args:
        given: lines that were given out, as plain() has them.
    """
    blocks: list[list[str]] = []
    last = -1  # the first line, too, begins one
    for number, text in _said(source):
        if number != last + 1 or not text.startswith("#"):
            blocks.append([])
        last = number
        own = [line for line in text.splitlines() if plain(line) not in given]
        blocks[-1] += own
    return [said for block in blocks if (said := _answer("\n".join(block)))]


def _answer(text: str) -> str:
    """A comment or string as one text; "" where it is no answer. Long strings are the lab's: of its functions."""
    said = " ".join(line.strip("#\"' ") for line in text.splitlines()).strip()
    words = len(WORDS.findall(said))
    is_long = text.startswith("#") and words >= LONG
    return said if words >= FEW and (is_long or MEANT.match(said)) else ""


def _said(source: str) -> list[tuple[int, str]]:
    """Line and text of each comment and string, up to where Python cannot read the file."""
    found: list[tuple[int, str]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                found.append((token.start[0], token.string))
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # what comes before counts; the checks tell what is wrong
    return found
