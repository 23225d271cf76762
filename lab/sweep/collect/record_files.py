"""Read a run's files, which may be anything: each comes whole and plausible, or as a sentence about it."""

import csv
import io
import json
from pathlib import Path

from lab.runs.records.job import LARGEST
from lab.slurm import reasons


class NotUsable(Exception):
    """A record is missing, damaged or another run's; the text is the row's reason."""


def text_of(value: object) -> str:
    usable = isinstance(value, str | int | float) and not isinstance(value, bool)
    return reasons.one_line(str(value)) if usable else ""


def read_text(path: Path) -> str:
    if not path.exists():
        raise NotUsable(f"{path.name} is missing")
    if not path.is_file():
        raise NotUsable(f"{path.name} is not a file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise NotUsable(f"{path.name} is larger than {LARGEST >> 20} MiB: not a record of a run")
    if not content.strip():
        raise NotUsable(f"{path.name} is empty")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise NotUsable(f"{path.name} is not text") from None


def json_object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise NotUsable(f"{path.name} is not JSON: it was cut off or overwritten") from None
    if not isinstance(value, dict):
        raise NotUsable(f"{path.name} holds no JSON object")
    return value


def csv_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of a CSV file that has at least these columns, each row with a value for every column."""
    try:
        header, *records = list(csv.reader(io.StringIO(read_text(path)), strict=True))
    except csv.Error as error:
        raise NotUsable(f"{path.name} is not CSV: {error}") from None
    missing = [name for name in columns if name not in header]
    if missing or len(set(header)) != len(header):
        raise NotUsable(f"the first line of {path.name} is not the names of its columns")
    for number, record in enumerate(records, start=2):
        if len(record) != len(header):
            raise NotUsable(f"line {number} of {path.name} has {len(record)} fields instead of {len(header)}")
    return [dict(zip(header, record, strict=True)) for record in records]
