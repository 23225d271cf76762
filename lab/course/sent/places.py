"""What a student wrote outside of the cells that are for answers, and which question it belongs to.

A notebook as it was given out is compared with what came back: a cell's id, its grade id or its text says where in
it a reader is. What was not given out, and can be an answer, goes to the question that was asked last.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab.base.source import parsed
from lab.base.words import encodable, one_line
from lab.course.sent.damaged import Cells
from lab.syllabus.given_before import given_before

WORDS = re.compile(r"[^\W\d_]{2,}")
COMMENT = re.compile(r"^\s*#+ ?(.*)$")
SIGNS = re.compile(r"[=()\[\]{}]")  # of a program
LINK = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)")
NO_PYTHON = ("%", "!")
LABS_OWN = re.compile(r"\b(?:answer|check|figures|hint|progress|trace)\b|torchrun|^[!%].*python", re.MULTILINE)
MAX_OUTPUTS, MAX_OUTPUT, LONGEST = 50, 20_000, 800  # of a cell; characters of each; characters that are told
SAYS, SENTENCE = ("print", "display", "Markdown"), 3  # words


@dataclass(frozen=True)
class Given:
    """A cell as it was given out; answer: the grade id, where it is for one."""

    id: str
    grade_id: str
    answer: str
    is_text: bool
    text: str


@dataclass(frozen=True)
class Reference:
    """All notebooks as they were given out.

    lines      every line in them, and in those of earlier releases
    grade_ids  of all graded cells
    answers    those of them that are for answers
    """

    books: dict[str, list[Given]]
    lines: frozenset[str]
    grade_ids: frozenset[str]
    answers: frozenset[str]


@dataclass(frozen=True)
class Stray:
    """Text of a student's, and the grade id of the answer that it belongs to; "" where nothing was asked yet.

    put_out  where the cell itself says nothing: the sentences in its outputs
    """

    answer: str
    text: str
    cell: dict[str, Any]
    put_out: str = ""


@cache
def reference(folders: tuple[Path, ...]) -> Reference:
    """The notebooks in these folders; of two with one name both, as a student may have either."""
    books: dict[str, list[Given]] = {}
    lines = {plain(line) for line in given_before()}
    for folder in folders:
        for path in sorted(folder.glob("*.ipynb")):
            try:
                cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
                given = [_given(cell) for cell in cells]
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue  # not the lab's: what nbgrader cannot read either
            books[path.name] = given
            lines |= {plain(line) for cell in given for line in cell.text.splitlines()}
    every = [cell for cells in books.values() for cell in cells]
    ids = {cell.grade_id for cell in every if cell.grade_id}
    answers = {cell.answer for cell in every if cell.answer}
    return Reference(books, frozenset(lines), frozenset(ids), frozenset(answers))


def _given(cell: dict[str, Any]) -> Given:
    graded = cell["metadata"].get("nbgrader") or {}
    name = str(graded.get("grade_id", ""))
    answer = name if graded.get("grade") and graded.get("solution") else ""
    return Given(str(cell.get("id", "")), name, answer, cell["cell_type"] == "markdown", source_of(cell))


def strays(
    cells: Cells, name: str, known: Reference, grade_id: Callable[[dict[str, Any]], str | None]
) -> Iterator[Stray]:
    """Every text that may be an answer and stands in no cell for one, in the notebook's order.

    Args:
        name: of the notebook's file.
        grade_id: of a cell, if it has one.
    """
    given = _book(cells, name, known, grade_id)
    by_id = {cell.id: place for place, cell in enumerate(given) if cell.id}
    by_grade_id = {cell.grade_id: place for place, cell in enumerate(given) if cell.grade_id}
    often = Counter(plain(cell.text) for cell in given)
    by_text = {text: place for place, cell in enumerate(given) if often[text := plain(cell.text)] == 1}
    at = -1
    for cell in cells:
        graded = grade_id(cell) or ""
        text = source_of(cell)
        if graded in known.grade_ids:
            at = by_grade_id.get(graded, at)
        else:
            at = by_text.get(plain(text), by_id.get(str(cell.get("id")), at))
        if graded in known.answers or (graded in known.grade_ids and cell.get("cell_type") != "code"):
            continue  # a check's cell that is Markdown now says what its check has said
        own = _own_code(text, known) if cell.get("cell_type") == "code" else _own_text(text, known)
        if own or (cell.get("attachments") and cell.get("cell_type") == "markdown"):
            yield Stray(_question(given, at), own, cell)
        elif graded not in known.grade_ids and (put_out := _put_out(cell, known)):
            yield Stray(_question(given, at), "", cell, put_out)


def only_put_out(strays: Iterable[Stray], answers: Iterable[tuple[str, str]], lines: Collection[str]) -> list[str]:
    """What stands in the outputs of a student's own cells below a question that nobody has answered otherwise."""
    answered = {"", *(name for name, text in answers if is_own(text, lines))}
    said = "in the output of a cell alone, which is not used"
    return [
        f"answers {stray.answer} {said}: {encodable(one_line(stray.put_out, LONGEST))}"
        for stray in strays
        if stray.put_out and stray.answer not in answered
    ]


def _book(
    cells: Cells, name: str, known: Reference, grade_id: Callable[[dict[str, Any]], str | None]
) -> Sequence[Given]:
    """The notebook that this one was: by its name, else by what is in it."""
    if name in known.books:
        return known.books[name]
    ids = {graded for cell in cells if (graded := grade_id(cell))}
    texts = {plain(source_of(cell)) for cell in cells}

    def alike(book: str) -> int:
        return sum(cell.grade_id in ids or plain(cell.text) in texts for cell in known.books[book])

    best = max(known.books, key=alike, default="")
    return known.books[best] if best and alike(best) > 1 else ()


def _question(given: Sequence[Given], at: int) -> str:
    """The answer to the last question that is asked at or before a place."""
    asked, answer = -1, ""
    for place, cell in enumerate(given):
        if cell.answer:
            if 0 <= asked <= at:
                answer = cell.answer
        elif cell.is_text:
            asked = place
    return answer


def is_own(text: str, lines: Collection[str]) -> bool:
    """Whether an answer says anything besides lines that were given out."""
    return any(re.search(r"\w", line) and plain(line) not in lines for line in text.splitlines())


def _own_text(text: str, known: Reference) -> str:
    lines = [line for line in text.splitlines() if not line.strip() or plain(line) not in known.lines]
    return "\n".join(lines).strip() if re.search(r"\w", "\n".join(lines)) else ""


def _own_code(text: str, known: Reference) -> str:
    """Comments and sentences in a code cell, or all of it where it is no code, as Markdown shows them."""
    lines = [line for line in text.splitlines() if plain(line) not in known.lines]
    code = "\n".join("" if line.lstrip().startswith(NO_PYTHON) else line for line in text.splitlines())
    if not _is_prose(code):
        spoken = _spoken(code)
        lines = [
            line.strip()
            for number, line in enumerate(text.splitlines(), 1)
            if plain(line) not in known.lines
            and (number in spoken or ((comment := COMMENT.match(line)) and _is_said(comment[1])))
        ]
    own = "\n".join(lines).strip()
    return f"```\n{own}\n```" if WORDS.search(own) else ""


def _put_out(cell: dict[str, Any], known: Reference) -> str:
    """Sentences in the outputs of a code cell that is the student's own and calls nothing of the lab's."""
    text, outputs = source_of(cell), cell.get("outputs")
    given = text.strip() and all(plain(line) in known.lines for line in text.splitlines())
    if cell.get("cell_type") != "code" or not isinstance(outputs, list) or given or LABS_OWN.search(text):
        return ""
    lines = []
    for output in outputs[:MAX_OUTPUTS]:
        data = output.get("data") if isinstance(output, dict) else None
        if isinstance(data, dict):
            shown = data.get("text/markdown") or data.get("text/plain")
        else:
            shown = output.get("text") if isinstance(output, dict) and output.get("name") == "stdout" else ""
        lines += [line.strip() for line in source_of({"source": shown})[:MAX_OUTPUT].splitlines()]
    return " ".join(line for line in lines if _is_sentence(line))


def _is_sentence(line: str) -> bool:
    return len(WORDS.findall(line)) >= SENTENCE and not SIGNS.search(line) and not line.startswith("<")


def _is_said(comment: str) -> bool:
    """Whether a comment has words, and is no code that somebody has put aside."""
    return bool(WORDS.search(comment)) and not (SIGNS.search(comment) and parsed(comment.strip()) is not None)


def _spoken(code: str) -> set[int]:
    """The lines of sentences that a cell prints, shows or gives a name: answer = "The batch differs." """
    lines: set[int] = set()
    tree = parsed(code)
    for one in tree.body if tree else ():
        said = one.value if isinstance(one, ast.Expr | ast.Assign) else None
        while (
            isinstance(said, ast.Call) and isinstance(said.func, ast.Name) and said.func.id in SAYS and said.args
        ):
            said = said.args[0]
        if isinstance(said, ast.Constant) and len(WORDS.findall(str(said.value))) >= SENTENCE:
            lines.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    return lines


def _is_prose(code: str) -> bool:
    """Whether a code cell holds words: a text in quotes, or what Python cannot read and does not look like it."""
    tree = parsed(code)
    if tree is None:
        return len(WORDS.findall(code)) > 2 * len(SIGNS.findall(code))
    return bool(tree.body) and all(isinstance(one, ast.Expr) and _is_text(one.value) for one in tree.body)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def source_of(cell: dict[str, Any]) -> str:
    """A cell's text, which notebooks have in one piece or in lines."""
    source = cell.get("source")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def plain(text: str) -> str:
    """Without differences in white space, and in where links lead: that depends on the folder of the notebooks."""
    return " ".join(LINK.sub(r"\1", text).split())
