"""The cells of a notebook's file, whatever it went through: another encoding, the old format, cut off, merged."""

from __future__ import annotations

import json
import re
from typing import Any

CELL = re.compile(r"\{\s*\"(?:attachments|cell_type)\"\s*:")
OUTPUTS = re.compile(r"(?<!\\)\"outputs\"\s*:\s*\[")
TOKEN = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"|[\[\]]", re.DOTALL)
SOURCE = re.compile(r"\"source\"\s*:\s*(\[?)\s*")
STRING = re.compile(r"\"((?:[^\"\\]++|\\.)*+)(\"?)\s*(,?)\s*", re.DOTALL)
MERGE = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?: .*)?\r?\n?", re.MULTILINE)  # git's marks, on lines of their own
FIELD = r"\"{}\"\s*:\s*\"([^\"\\]{{1,100}})\""
Cells = list[dict[str, Any]]


def cells_of(content: bytes) -> tuple[Cells, str]:
    """The cells, and what was wrong with the file, "" where nothing was.

    Raises:
        ValueError: there are none; says why.
    """
    text, wrong = _decoded(content)
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        where, plain = _merged(text)
        whole = _salvaged(plain)
        wrong = f"is damaged: {str(error) or type(error).__name__}"
        if not whole:
            raise ValueError(wrong) from error
        return whole, f"{wrong}; {len(whole)} cells could still be read{where}"
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if isinstance(cells, list):
        return [cell for cell in cells if isinstance(cell, dict)], wrong
    if isinstance(notebook, dict) and isinstance(notebook.get("worksheets"), list):
        return _of_format_3(notebook["worksheets"]), "is of nbformat 3, which was used until 2015"
    raise ValueError("is no notebook of the format 4")


def without_outputs(content: bytes) -> bytes:
    """The same notebook, and nothing of what its cells have put out, which may be any amount."""
    text = _decoded(content)[0]
    kept, at = [], 0
    while begin := OUTPUTS.search(text, at):
        kept.append(text[at : begin.end()])
        depth = 1
        at = len(text)
        for token in TOKEN.finditer(text, begin.end()):
            depth += {"[": 1, "]": -1}.get(token[0], 0)
            if depth == 0:
                at = token.start()
                break
    return "".join([*kept, text[at:]]).encode()


def _decoded(content: bytes) -> tuple[str, str]:
    """As text, and what is said about its encoding."""
    code = json.detect_encoding(content)
    try:
        return content.decode(code), "" if code.startswith("utf-8") else f"is in {code.upper()}"
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), "is in no encoding of JSON, and was read as Windows-1252"


def _of_format_3(worksheets: list[Any]) -> Cells:
    found: Cells = []
    for sheet in worksheets:
        cells = sheet.get("cells") if isinstance(sheet, dict) else None
        for cell in cells if isinstance(cells, list) else []:
            if isinstance(cell, dict):
                found.append(cell | {"source": cell.get("source", cell.get("input", ""))})
    return found


def _salvaged(text: str) -> Cells:
    """The cells of a file that is no JSON: every one that is whole, and of others what can be told."""
    decoder = json.JSONDecoder()
    begin = text.find('"cells"')
    found: Cells = []
    at = begin if begin >= 0 else len(text)
    while cell := CELL.search(text, at):
        try:
            value, at = decoder.raw_decode(text, cell.start())
        except (ValueError, RecursionError):
            after = CELL.search(text, cell.end())
            at = after.start() if after else len(text)
            value = _in_part(text[cell.start() : at])
        if isinstance(value, dict) and "cell_type" in value:
            found.append(value)
    return found


def _merged(text: str) -> tuple[str, str]:
    """What to say of a merge that was not finished, "" where there is none; and the text without its marks."""
    if not any(mark[0].startswith("<") for mark in MERGE.finditer(text)):
        return "", text
    begins = [cell.start() for cell in CELL.finditer(text)]
    names = []
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        if MERGE.search(text, begin, end):
            cell = _in_part(MERGE.sub("", text[begin:end]))
            graded = cell["metadata"].get("nbgrader", {}).get("grade_id")
            names.append(str(graded or cell.get("id") or "a cell without a name"))
    where = f" in {', '.join(dict.fromkeys(names))}" if names else ""
    said = f"; a merge was not finished (<<<<<<<){where}: what could be read of both sides stands there"
    return said, MERGE.sub("", text)


def _in_part(text: str) -> dict[str, Any]:
    """A cell that is cut off or damaged."""
    cell: dict[str, Any] = {}
    for name in ("cell_type", "id", "grade_id"):
        if value := re.search(FIELD.format(name), text):
            cell[name] = value[1]
    cell["metadata"] = (
        {"nbgrader": {"grade_id": cell.pop("grade_id"), "solution": True}} if "grade_id" in cell else {}
    )
    lines = []
    if source := SOURCE.search(text):
        at = source.end()
        while line := STRING.match(text, at):
            lines.append(_unescaped(line[1]) + "\n" * (not line[3]))
            at = line.end()
            if not source[1]:
                break  # in a list the comma may be missing: a side of a merge ends there
    cell["source"] = "".join(lines).rstrip("\n")
    return cell


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text
