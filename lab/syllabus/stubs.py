"""From solutions/ to exercises/: every solution region becomes a NotImplementedError that names the exercise.

    # TODO 3.1: let the first process load while the others wait.
    ### BEGIN SOLUTION 3.1
    ...
    ### END SOLUTION

The id is an exercise of the syllabus, with a letter where an exercise has several regions. The TODO comment
stays, and so do the imports: they are the first hint.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UserError
from lab.base.source import source_lines
from lab.syllabus.syllabus import Syllabus

BEGIN = re.compile(r"\s*### BEGIN SOLUTION (\d+\.\d+)([a-z]?)\s*$")
END = re.compile(r"\s*### END SOLUTION\s*$")
LOOKS_LIKE_A_MARKER = re.compile(r"#.*\b(BEGIN|END)\s+SOLUTION", re.IGNORECASE)

LINE_LENGTH = 115  # as pyproject.toml tells ruff


class StubError(UserError):
    """A solution breaks the marker grammar; the message begins with file:line."""


@dataclass(frozen=True)
class Region:
    """One solution region. Lines count from 1; begin and end are those of the markers."""

    exercise: str  # "3.1"
    id: str  # "3.1a"
    begin: int
    end: int
    owner: str  # "get_dataloaders()" or "CNN.forward()"; "" at module level


def generate(solutions: Path, syllabus: Syllabus) -> dict[str, str]:
    """File name, below `solutions` -> text of the student version, for every module there.

    Raises:
        StubError: naming file and line.
    """
    sources = {path.relative_to(solutions).as_posix(): path for path in sorted(solutions.rglob("*.py"))}
    if not sources:
        raise StubError(f"{solutions.name}/ holds no Python files")
    stubs: dict[str, str] = {}
    where: dict[str, str] = {}
    for name, path in sources.items():
        text = path.read_text(encoding="utf-8")
        for region in find_regions(text, name, syllabus):
            if region.id in where:
                raise StubError(f"{name}:{region.begin}: region {region.id} is in {where[region.id]} already")
            where[region.id] = f"{name}:{region.begin}"
        stubs[name] = make_stub(text, name, syllabus)
    done = {re.sub("[a-z]$", "", region_id) for region_id in where}
    if without := [exercise.id for exercise in syllabus.every if exercise.id not in done]:
        raise StubError(f"syllabus.toml: no region for exercise {', '.join(without)} in {solutions.name}/")
    return stubs


def find_regions(text: str, file: str, syllabus: Syllabus) -> list[Region]:
    """The solution regions of one module, in file order.

    Raises:
        StubError: unknown id, wrong module, nested, unbalanced, empty or misspelt markers.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise StubError(f"{file}:{error.lineno}: {error.msg}") from error
    regions: list[Region] = []
    opened: tuple[str, str, int] | None = None  # exercise, region id, line
    lines = [line.rstrip("\n") for line in source_lines(text)]
    for number, line in enumerate(lines, start=1):
        if match := BEGIN.match(line):
            exercise, region_id = match[1], match[1] + match[2]
            if opened:
                raise StubError(
                    f"{file}:{number}: region {region_id} begins inside {opened[1]} (line {opened[2]})"
                )
            if exercise not in [known.id for known in syllabus.every]:
                raise StubError(f"{file}:{number}: syllabus.toml has no exercise {exercise}")
            if syllabus[exercise].file != file:
                raise StubError(f"{file}:{number}: exercise {exercise} belongs in {syllabus[exercise].file}")
            if region_id in [region.id for region in regions]:
                raise StubError(f"{file}:{number}: region {region_id} is there twice")
            opened = exercise, region_id, number
        elif END.match(line):
            if not opened:
                raise StubError(f"{file}:{number}: END SOLUTION without a BEGIN SOLUTION before it")
            exercise, region_id, begin = opened
            if not any(inner.strip() for inner in lines[begin : number - 1]):
                raise StubError(f"{file}:{begin}: region {region_id} is empty")
            regions.append(Region(exercise, region_id, begin, number, _owner(tree, begin)))
            opened = None
        elif LOOKS_LIKE_A_MARKER.search(line):
            raise StubError(
                f"{file}:{number}: not a marker: {line.strip()!r}; "
                "write ### BEGIN SOLUTION 3.1a or ### END SOLUTION on a line of its own"
            )
    if opened:
        raise StubError(f"{file}:{opened[2]}: region {opened[1]} has no END SOLUTION")
    return regions


def make_stub(text: str, file: str, syllabus: Syllabus) -> str:
    """The student version of one module.

    Raises:
        StubError: as find_regions, or the stub of a region does not parse.
    """
    regions = find_regions(text, file, syllabus)
    for region in regions:
        try:
            ast.parse(_replace(text, [region], file))
        except SyntaxError as error:
            raise StubError(
                f"{file}:{region.begin}: without region {region.id} the file does not parse: {error.msg}"
            ) from error
    return _replace(text, regions, file)


def _replace(text: str, regions: list[Region], file: str) -> str:
    lines = source_lines(text)
    for region in reversed(regions):
        body = lines[region.begin : region.end - 1]
        first = next(line for line in body if line.strip())
        indent = first[: len(first) - len(first.lstrip())]
        lines[region.begin - 1 : region.end] = [_not_done(region, file, indent)]
    return "".join(lines)


def _not_done(region: Region, file: str, indent: str) -> str:
    place = f"{region.owner} in {file}" if region.owner else file
    message = f'"Exercise {region.id} is not done yet: {place}"'
    line = f"{indent}raise NotImplementedError({message})\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    return f"{indent}raise NotImplementedError(\n{indent}    {message}\n{indent})\n"  # as ruff would wrap it


def _owner(tree: ast.Module, line: int) -> str:
    """The function, or class and method, around a line, as a student would call it."""
    names: list[str] = []
    body = tree.body
    while True:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
                node.lineno <= line <= (node.end_lineno or node.lineno)
            ):
                break
        else:
            return ".".join(names)
        names.append(node.name)
        if not isinstance(node, ast.ClassDef):
            return ".".join(names) + "()"
        body = node.body
