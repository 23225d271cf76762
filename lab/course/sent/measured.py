"""What a student measured, for whoever marks section 7: tables that the lab makes of the results.csv sent.

The file is the student's, so it is read in the sandbox, by the code that makes the table for collect_results.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.base.errors import UserError
from lab.base.words import printable_lines
from lab.course.sent.contents import MEASURED
from lab.course.sent.shown import LONGEST
from lab.ranks.rank import Rank
from lab.ranks.server import RankServer, RankServerError

MOST = 8  # files
SECONDS = 30.0  # for all of them


def tables(sent: Mapping[str, bytes], server: RankServer) -> dict[str, str]:
    """Folder -> the table of its results.csv, or a sentence that says why there is none."""
    if not sent:
        return {}
    names = list(sent)[:MOST]
    files = [sent[name] for name in names]
    try:
        result = server.run(make_tables, 1, code=None, inputs=files, timeout=SECONDS, set_up_process_group=False)
    except RankServerError as error:
        return dict.fromkeys(names, f"results.csv was handed in, but could not be read: {error}")
    report = result.reports[0]
    made = report.value if report.status == "ok" else None
    if not isinstance(made, list) or len(made) != len(names):
        return dict.fromkeys(names, f"results.csv was handed in, but could not be read ({report.status})")
    return {name: printable_lines(str(text)[:LONGEST]) for name, text in zip(names, made, strict=True)}


def make_tables(rank: Rank) -> list[str]:
    """In the sandbox: the tables of these files."""
    from lab.sweep.compare.frame import load
    from lab.sweep.compare.table import summary

    made = []
    files: list[Any] = rank.receive()
    for content in files:
        path = Path("/tmp", MEASURED.name)
        path.write_bytes(content)
        try:
            made.append(summary(load(path)))
        except UserError as error:
            made.append(f"the results.csv that was handed in shows nothing: {error}")
        except Exception as error:  # noqa: BLE001 - a student's numbers may be any
            made.append(f"the results.csv that was handed in cannot be read: {type(error).__name__}")
    return made
