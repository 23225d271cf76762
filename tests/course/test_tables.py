"""What students are called and wrote, in tables and in a terminal: shown, and never computed or obeyed."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import pytest

from lab.base.words import visible
from lab.cli import main
from lab.course.marking_table import write_answers
from lab.course.marks import SubmissionRecord
from lab.course.report_page import mistakes_csv, outcomes_csv, report_page
from lab.course.submissions import find_submissions
from lab.course.tables import as_written, harmless, marks_csv, table

BEGIN = ("=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x")
BEFORE = ("", " ", "a;", "a;  ", 'a;"', "a\t", "a\r", "a\r\n", "a\n", "\t", "\r", ";")


@pytest.mark.parametrize("before", BEFORE)
def test_no_cell_begins_a_formula_wherever_a_spreadsheet_splits_it(before: str):
    for formula in BEGIN:
        said = before + formula
        text = table(["student"], [[said], ["x", said]])
        for delimiter in (",", ";", "\t"):
            for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):  # a parser that splits elsewhere sees no quotes
                if delimiter == "," and quoting == csv.QUOTE_NONE:
                    continue
                rows = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting)
                cells = [cell.strip(' "\t') for row in rows for cell in row]
                assert not [cell for cell in cells if cell[:1] and cell[0] in "=+-@\uff1d\uff0b\uff0d\uff20"], said
        assert as_written(str(harmless(said))) == as_written(said)
        assert as_written(str(harmless(said))).endswith(formula)
    assert harmless(f"in a text = and - and {before}x") == f"in a text = and - and {before}x".replace(
        "\r\n", "\n"
    ).replace("\r", "\n")


def test_no_text_takes_long():
    begin = time.monotonic()
    for said in ("\n" * 200_000, ";" * 200_000, " " * 200_000 + "x", "\n=" * 100_000, '"' * 200_000):
        as_written(str(harmless(said)))
    assert time.monotonic() - begin < 20  # a second; for ever where it is quadratic


NAMES = ("\x1b[2Jeve", "eve\nroot,100", "eve\u202egnp", "=cmd|' /C calc'!A0", "<b>eve</b>")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_line_that_is_shown_and_does_nothing(name: str, tmp_path: Path):
    folder = tmp_path / "class"
    (folder / name.replace("/", "")).mkdir(parents=True)
    [student] = find_submissions(folder)
    assert student.isprintable()
    assert student == visible(name.replace("/", ""))
    records = [SubmissionRecord(student, "key", (), remarks=(f"{name} left out",), look=(name,))]
    write_answers(tmp_path, records, {})
    for text in (marks_csv(records), outcomes_csv(records), mistakes_csv(records)):
        for row in csv.reader(io.StringIO(text)):
            assert all(cell.replace("\n", "").isprintable() or "\ufffd" in cell for cell in row)
            assert not [cell for cell in row if cell[:1] in ("=", "+", "-", "@")]
    page = report_page(records)
    assert "\x1b" not in page
    assert "<b>eve" not in page


def test_nothing_of_a_name_reaches_the_terminal_raw(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    for name in ("\x1b[2Jeve", "\x1b[2Jeve.zip"):
        (tmp_path / "class" / name).mkdir(parents=True)
    assert main(["grade", str(tmp_path / "class" / "\x1b[2J" / "none")]) != 0
    (tmp_path / "class" / "\x1b[2Jeve.zip").rmdir()
    (tmp_path / "class" / "\x1b[2Jeve.zip").write_bytes(b"")
    assert main(["grade", str(tmp_path / "class"), "--out", str(tmp_path / "grades")]) != 0
    said = "".join(capfd.readouterr())
    assert "is there twice" in said
    assert "\x1b" not in said
