"""Tables that people keep in spreadsheets, as any of these saves them: what separates, which encoding, a BOM."""

from __future__ import annotations

import codecs
import csv
import io
import re
from pathlib import Path

from lab.base.errors import UserError

Row = dict[str, str]


def text_of(saved: bytes) -> str:
    """The text of a table: UTF-8 or UTF-16 as its BOM says, else UTF-8, else Excel's "CSV" on Windows.

    Raises:
        ValueError: it is none of these.
    """
    if saved.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return saved.decode("utf-16")
    try:
        return saved.decode("utf-8-sig")
    except UnicodeDecodeError:
        return saved.decode("cp1252")


def reader_of(text: str) -> csv.DictReader[str]:
    """Its rows by column; what separates them is what the first line has most of."""
    head = text.partition("\n")[0]
    return csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), restval="")


def read_table(path: Path) -> list[tuple[int, Row]]:
    """The rows that hold anything, each with its line; columns by their plain() names.

    Raises:
        UserError: it cannot be read, or is no table.
    """
    try:
        reader = reader_of(text_of(path.read_bytes()))
        rows = []
        for row in reader:
            cells = {
                plain(name): (cell or "").strip() for name, cell in row.items() if isinstance(cell, str | None)
            }
            if any(cells.values()):
                rows.append((reader.line_num, cells))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} is no CSV that can be read: {error}") from error
    if not rows:
        raise UserError(f"{path} holds no rows below its first line, which names the columns")
    return rows


def plain(name: str | None) -> str:
    """A column's name without case and signs, "E-mail_Address" -> "e mail address"; "" for no name."""
    return " ".join(re.sub(r"[\W_]+", " ", name or "").split()).casefold()


def first_of(row: Row, names: tuple[str, ...]) -> str:
    """The first of these columns that holds anything; "" where none does."""
    return next((row[name] for name in names if row.get(name)), "")
