"""A CSV file with a row for each of some dataclass's objects."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from lab.base.errors import UserError
from lab.base.files import write_whole

Row = TypeVar("Row")


def save(rows: Sequence[Any], path: Path, columns: Sequence[str]) -> None:
    """Write these attributes of each row, numbers with a point to six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [f"{value:.6g}" if isinstance(value, float) else value for value in (getattr(one, n) for n in columns)]
        for one in rows
    )
    write_whole(path, text.getvalue())


def load(path: Path, kind: type[Row], what: str, again: str, whole: Callable[[Row], bool]) -> list[Row]:
    """What save() has written: the fields of `kind`, which are texts and numbers; other columns are not read.

    A field with a default may have no column, as in a file from before there was the field.

    Args:
        what: the file is in a person's words; `again`: how to get one that can be read.
        whole: whether a row can be believed.

    Raises:
        UserError: it cannot be read, or is no such file.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            names: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
            needed = {field.name for field in fields(kind) if field.default is MISSING}  # type: ignore[arg-type]
            if not reader.fieldnames or needed - set(reader.fieldnames):
                raise UserError(f"{path} lacks columns of {what}: {again}")
            rows = []
            for line, row in enumerate(reader, start=2):
                try:
                    one = kind(**{name: typed(row[name]) for name, typed in names.items() if name in row})
                    good = whole(one)
                except (TypeError, ValueError):
                    good = False
                if not good:
                    raise UserError(f"line {line} of {path} is damaged: {again}")
                rows.append(one)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): {again}") from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{path} is not a CSV file: {again}") from None
    if not rows:
        raise UserError(f"{path} is empty: {again}")
    return rows
