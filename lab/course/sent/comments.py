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
    blocks: list[list[str]] = [[]]
    last = 0
    for number, text in _said(source):
        if number != last + 1:
            blocks.append([])
        last = number
        own = [line for line in text.splitlines() if plain(line) not in given]
        blocks[-1] += [line.strip("#\"' ") for line in own]
    texts = [" ".join(block).strip() for block in blocks]
    return [text for text in texts if _may_answer(text)]


def _may_answer(text: str) -> bool:
    words = len(WORDS.findall(text))
    return words >= LONG or (words >= FEW and MEANT.match(text) is not None)


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
