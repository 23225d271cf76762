"""The line that is behind a diagnosis, where the one that it names only shows it: told from the source."""

import re
from pathlib import Path

from lab.base.source import parsed, searchable
from lab.base.words import one_line
from lab.grading.check import Check, Group
from lab.grading.diagnosis import Diagnosis
from lab.grading.places import read_lines
from lab.grading.unread import assigned_under, innermost, named_only
from lab.syllabus.syllabus import syllabus


def of_the_source(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis:
    """The same with the line that is behind it: a method that is named and not called, or a condition under which
    alone a variable gets its value."""
    file, folder = syllabus()[check.exercise].file, group.code.resolve()
    place = re.match(r"([\w.]+):(\d+)  ", searchable(diagnosis.look))
    tree = parsed("\n".join(read_lines(str(folder / file), folder)))
    if place is None or tree is None or place[1] != Path(file).name:
        return diagnosis
    function = innermost(tree, int(place[2]))
    unbound = re.search(r"UnboundLocalError: cannot access local variable '(\w+)'", searchable(diagnosis.saw))
    means, line = diagnosis.means, 0
    if function is not None and (line := named_only(function)):
        means = "Without () a method is only named, and nothing is called: write () behind it."
    elif function is not None and unbound and (line := assigned_under(function, unbound[1])):
        means = f"{unbound[1][:40]} gets its value under this condition alone."
    if not line:
        return diagnosis
    look = at_line(file, line, group)
    return Diagnosis(diagnosis.name, saw=diagnosis.saw, means=means, look=look, details=diagnosis.details)


def at_line(file: str, line: int, group: Group) -> str:
    name = Path(file).name
    lines = read_lines(str(group.code.resolve() / name), group.code.resolve())
    text = one_line(lines[line - 1], 80) if 1 <= line <= len(lines) else ""
    return f"{name}:{line}" + (f"  {text}" if text else "")
