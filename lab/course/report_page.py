"""The class report: exercises x students at a glance, and the mistakes that most students made, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.base.words import as_html
from lab.course.marks import ExerciseMark, SubmissionRecord
from lab.course.pages import page
from lab.course.tables import table
from lab.grading.looks import LOOKS, PARTLY
from lab.syllabus.syllabus import Exercise, syllabus

STYLE = """
body{max-width:80rem}
.heat th,.heat td{text-align:center;padding:2px 6px;white-space:nowrap}
.heat th.who,.heat td.who{text-align:left;max-width:16rem;overflow:hidden;text-overflow:ellipsis;
position:sticky;left:0;background:#f3f4f6;font-weight:600}
.heat td.m{min-width:2.6rem;border:2px solid #fff}
.m small{display:block;font-size:11px;line-height:1.1}
.key span{display:inline-block;border-radius:4px;padding:1px 8px;margin:2px 8px 2px 0}
.bar{display:inline-block;height:10px;background:#5f6772;vertical-align:middle}
"""


@dataclass(frozen=True)
class Mistake:
    """One diagnosis of one exercise, and who got it."""

    exercise: str
    name: str
    students: tuple[str, ...]
    means: str

    @property
    def words(self) -> str:
        """ "no-set-epoch" -> "no set epoch"."""
        return self.name.replace("-", " ")


def mistakes(records: Sequence[SubmissionRecord]) -> list[Mistake]:
    """Every diagnosis that was given, the most frequent first; a student counts once for each."""
    who: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        for mark in record.exercises:
            for finding in mark.diagnoses:
                who.setdefault((mark.exercise, finding.name), {}).setdefault(record.student, finding.means)
    found = [
        Mistake(exercise, name, tuple(students), next(iter(students.values())))
        for (exercise, name), students in who.items()
    ]
    order = {name: number for number, name in enumerate(syllabus().ids)}
    return sorted(found, key=lambda one: (-len(one.students), order.get(one.exercise, 99), one.name))


def mistakes_csv(records: Sequence[SubmissionRecord]) -> str:
    """One row a mistake: exercise, diagnosis, how many of how many, what it means, who."""
    rows = [
        (one.exercise, one.name, len(one.students), len(records), one.means, " ".join(one.students))
        for one in mistakes(records)
    ]
    return table(("exercise", "diagnosis", "students", "of", "means", "who"), rows)


def outcomes_csv(records: Sequence[SubmissionRecord]) -> str:
    """The heat map: one row a student, the outcome of each exercise, with the diagnoses' names."""
    of = syllabus()
    rows = []
    for record in records:
        marks = {mark.exercise: mark for mark in record.exercises}
        cells = []
        for name in of.ids:
            mark = marks.get(name)
            names = sorted({finding.name for finding in mark.diagnoses}) if mark else []
            cells.append(": ".join([state(mark), *([", ".join(names)] if names else [])]) if mark else "")
        rows.append([record.student, *cells])
    return table(("student", *of.ids), rows)


def report_page(records: Sequence[SubmissionRecord]) -> str:
    """The whole page."""
    of = syllabus()
    count = len(records)
    points = sorted(record.points for record in records)
    labs = ", ".join(sorted({record.lab for record in records}))
    middle = (points[(count - 1) // 2] + points[count // 2]) / 2 if points else 0
    parts = [
        "<h1>Class report</h1>",
        f"<p>{count} submissions; half of them have {middle:g} points or more of {of.points} "
        f"(lowest {points[0] if points else 0:g}, highest {points[-1] if points else 0:g}).</p>",
        f'<p class="quiet">Checked by Scaling Lab {as_html(labs)}. Questions marked by hand are not in here.</p>',
    ]
    look = [(record.student, why) for record in records for why in record.to_look]
    if look:
        items = "".join(f"<li><strong>{as_html(student)}</strong>: {as_html(why)}</li>" for student, why in look)
        parts.append(f'<h2>For you to look at</h2><ul class="plain">{items}</ul>')
    parts += ["<h2>Most frequent mistakes</h2>", _mistakes(records), "<h2>Exercises by students</h2>", _key()]
    parts.append(_heat(records, of.exercises))
    return page("Class report", parts, STYLE)


def state(mark: ExerciseMark) -> str:
    """The outcome's word; "partly" where some of the checks passed."""
    return PARTLY if mark.word == "failed" and mark.points else mark.word


def _mistakes(records: Sequence[SubmissionRecord]) -> str:
    found = mistakes(records)
    if not found:
        return "<p>No check has found a mistake.</p>"
    rows = "".join(
        f'<tr><td class="number">{len(one.students)} of {len(records)}</td>'
        f'<td><span class="bar" style="width:{round(120 * len(one.students) / len(records))}px"></span></td>'
        f"<td>{one.exercise}</td><td><strong>{as_html(one.words)}</strong></td><td>{as_html(one.means)}</td></tr>"
        for one in found[:25]
    )
    rest = f"<p class=quiet>{len(found) - 25} more in mistakes.csv.</p>" if len(found) > 25 else ""
    head = "<tr><th>students</th><th></th><th>exercise</th><th>mistake</th><th>what it means</th></tr>"
    return f'<div class="wide"><table>{head}{rows}</table></div>{rest}'


def _key() -> str:
    items = "".join(
        f'<span style="background:{look.tint};color:{look.ink}">{look.sign} {word}</span>'
        for word, look in LOOKS.items()
        if look.tint
    )
    return f'<p class="key">{items}<span class="quiet">The small number is the points.</span></p>'


def _heat(records: Sequence[SubmissionRecord], exercises: Sequence[Exercise]) -> str:
    head = "".join(f'<th title="{as_html(e.title)}">{e.id}</th>' for e in exercises)
    rows = []
    for record in records:
        marks = {mark.exercise: mark for mark in record.exercises}
        cells = "".join(_cell(record.student, marks[e.id]) if e.id in marks else "<td></td>" for e in exercises)
        rows.append(
            f'<tr><td class="who" title="{as_html(record.student)}">{as_html(record.student)}</td>{cells}'
            f'<td class="number">{record.points:g}</td></tr>'
        )
    passed = [sum(m.passed for r in records for m in r.exercises if m.exercise == e.id) for e in exercises]
    foot = "".join(f"<th>{round(100 * number / max(1, len(records)))}%</th>" for number in passed)
    return (
        f'<div class="wide"><table class="heat"><thead><tr><th class="who">student</th>{head}<th>points</th></tr>'
        f'</thead><tbody>{"".join(rows)}</tbody><tfoot><tr><th class="who">passed</th>{foot}<th></th></tr></tfoot>'
        "</table></div>"
    )


def _cell(student: str, mark: ExerciseMark) -> str:
    word = state(mark)
    look = LOOKS[word]
    names = ", ".join(sorted({finding.name for finding in mark.diagnoses}))
    title = f"{student}, {mark.exercise} {mark.title}: {word}{': ' + names if names else ''}"
    points = "?" if mark.points is None else f"{mark.points:g}"
    return (
        f'<td class="m" style="background:{look.tint};color:{look.ink}" title="{as_html(title)}">'
        f"{look.sign}<small>{points}</small></td>"
    )
