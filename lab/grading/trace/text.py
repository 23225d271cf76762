"""A trace for a terminal: one lane a rank, from top to bottom."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from lab.base.terminal import paint
from lab.grading.trace.picture import Mark, Picture, Row

GAP = 3  # columns between two lanes

# Mark -> sign, sign in ASCII, ANSI colour. The signs differ in shape: colour is never the only difference.
SIGNS: Mapping[Mark, tuple[str, str, str]] = {
    "met": ("●", "o", "32"),
    "waits": ("◐", "@", "33"),
    "called": ("◇", "?", "33"),
    "absent": ("✗", "x", "31"),
    "blank": (" ", " ", ""),
}
UNICODE = "".join(sign for sign, _, _ in SIGNS.values()) + "─│⋮"  # what a picture is drawn with
LEGEND: Mapping[Mark, str] = {
    "met": "met",
    "waits": "waits",
    "called": "came, and went on",
    "absent": "did not come",
}


def trace_text(picture: Picture, *, width: int = 80, unicode: bool = True, colour: bool = False) -> str:
    """The lines of a picture, at most `width` columns wide."""
    return "\n".join(_Drawing(picture, width, unicode, colour).lines())


class _Drawing:
    def __init__(self, picture: Picture, width: int, unicode: bool, colour: bool) -> None:
        self.picture = picture
        self.digits = max([4, *(len(row.number) for row in picture.rows)])
        self.lanes = picture.world_size * (GAP + 1) - GAP
        self.room = max(20, width - self.digits - self.lanes - 4)
        # Beside each other where there is room for both, else one below the other in every row.
        widest = max((len(row.where) for row in picture.rows), default=0)
        self.column = min(34, max((len(row.what) for row in picture.rows), default=0))
        if self.column + 2 + widest > self.room:
            self.column = self.room
        self.unicode = unicode
        self.colour = colour

    def lines(self) -> Iterator[str]:
        if not self.picture.rows:
            return
        heads = (" " * GAP).join(str(rank)[-1] for rank in range(self.picture.world_size))
        yield f"{'rank':>{self.digits}}  {heads}"
        for index, row in enumerate(self.picture.rows):
            if self.picture.left_out and index == self.picture.head:
                dots = "⋮" if self.unicode else ":"
                yield f"{dots:>{self.digits}}  {self.picture.left_out} rows are left out here"
            yield from self.row(row)
        yield ""
        used = [mark for mark in LEGEND if any(mark in row.marks for row in self.picture.rows)]
        yield "  " + "   ".join(f"{self.sign(mark)} {LEGEND[mark]}" for mark in used)

    def row(self, row: Row) -> Iterator[str]:
        what = row.what
        if max(len(what), self.column) + 2 + len(row.where) <= self.room:
            texts = [f"{what:{self.column}}  {row.where}"]
        else:
            texts = [*self.wrap(what), *self.wrap(row.where)]
        for note in row.notes:
            texts += self.wrap(note)
        for index, text in enumerate(texts):
            head = f"{row.number:>{self.digits}}" if index == 0 else " " * self.digits
            lanes = self.marks(row) if index == 0 else self.bars(row)
            yield f"{head}  {lanes}  {text}".rstrip()

    def wrap(self, text: str) -> list[str]:
        return textwrap.wrap(text, self.room, break_on_hyphens=False)

    def marks(self, row: Row) -> str:
        """ "●───●", "◐   ✗": joined where ranks have met."""
        joined = [rank for rank, mark in enumerate(row.marks) if mark == "met"]
        line = ("─" if self.unicode else "-") if joined else " "
        parts = []
        for rank, mark in enumerate(row.marks):
            parts.append(self.sign(mark) if mark != "blank" or not self._between(rank, joined) else line)
            inside = joined and joined[0] <= rank < joined[-1]
            parts.append((line if inside else " ") * GAP if rank < len(row.marks) - 1 else "")
        return "".join(parts)

    @staticmethod
    def _between(rank: int, joined: list[int]) -> bool:
        return bool(joined) and joined[0] < rank < joined[-1]

    def bars(self, row: Row) -> str:
        """The lanes beside further lines of text: they go on where ranks have met, and end elsewhere."""
        bar = "│" if self.unicode else "|"
        return (" " * GAP).join(bar if mark == "met" else " " for mark in row.marks)

    def sign(self, mark: Mark) -> str:
        sign, ascii_sign, code = SIGNS[mark]
        text = sign if self.unicode else ascii_sign
        return paint(text, code) if self.colour else text
