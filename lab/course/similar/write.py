"""similar.html and similar.csv: pairs of submissions to look at, worst first, from the records in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from lab.base.html import render
from lab.base.paths import student_sources
from lab.base.source import source_lines
from lab.course import store
from lab.course.books import assignment_of
from lab.course.similar.pairs import Alike, Comparison, compared
from lab.course.tables import table

PAIRS = 15  # on the page, with their code
ROWS = 100  # pairs in the table
LEAST = 0.3  # share of a module from which its code is shown


def write_similar(out: Path, say: Callable[[str], None]) -> None:
    """Compare everybody whose record lies in `out`, and write both.

    Raises:
        UserError: nothing was graded.
    """
    records = store.records(out)
    rules, _ = store.class_rules(out, {})
    people = {one.student: rules.roster.person(one.student, one.name) for one in records}
    files = assignment_of(records).module_files
    stubs = {name: (student_sources() / "exercises" / name).read_text(encoding="utf-8") for name in files}
    sources = {record.student: record.code for record in records}
    found = compared(sources, stubs)
    store.write(out / "similar.csv", _csv(found, {student: one.name for student, one in people.items()}))
    old = [record.student for record in records if not record.code and not record.unread]
    page = render(
        "similar.html",
        title="Submissions that are alike",
        people=people,
        students=len(records),
        pairs=[
            (pair, [_shown(found, pair.students, one, sources) for one in pair.modules])
            for pair in found.pairs[:PAIRS]
        ],
        highest=max((pair.score for pair in found.pairs), default=1.0) or 1.0,
        usual=median([pair.score for pair in found.pairs] or [0.0]),
        unread=found.unread,
        old=old,
        least=LEAST,
    )
    store.write(out / "similar.html", page)
    say(f"{out}: similar.html and similar.csv: pairs of submissions to look at, the most alike first")
    if old:
        say(f"Not compared, as an older lab has graded them: {len(old)}; grade them again with --force")


def _csv(found: Comparison, names: dict[str, str]) -> str:
    """One row for each module of a pair."""
    head = [
        "rank",
        "student",
        "name",
        "other",
        "other_name",
        "score",
        "module",
        "share",
        "bits",
        "lines",
        "other_lines",
    ]
    rows = []
    for rank, pair in enumerate(found.pairs[:ROWS], 1):
        one, other = pair.students
        for alike in pair.modules:
            lines = [" ".join(map(str, sorted(found.lines(student, alike)))) for student in pair.students]
            who = [one, names[one], other, names[other]]
            rows.append(
                [rank, *who, f"{pair.score:.0f}", alike.module, f"{alike.share:.2f}", f"{alike.bits:.0f}", *lines]
            )
    return table(head, rows)


def _shown(
    found: Comparison, students: tuple[str, str], alike: Alike, sources: dict[str, dict[str, str]]
) -> tuple[Alike, list[list[tuple[str, bool]]]]:
    """A module of both, each as (line, whether it stands in the other too)."""
    texts = []
    for student in students:
        marked = found.lines(student, alike)
        lines = source_lines(sources[student][alike.module])
        texts.append([(line.rstrip("\r\n"), number in marked) for number, line in enumerate(lines, 1)])
    return alike, texts
