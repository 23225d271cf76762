"""Where a line of a student's module stands: in which branch, which loop. The file is parsed, never run."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.base.paths import module_file
from lab.base.source import MAX_SOURCE_BYTES, parsed, searchable, source_lines
from lab.base.words import one_line
from lab.collectives.conduct import Caught, Conduct, hidden_by, text_of
from lab.collectives.lanes import Frame
from lab.ranks.rank import LOCAL
from lab.syllabus.syllabus import ALL_MODULES, syllabus

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_COUNTS = "device_count"
_SETS_UP = "distributed_utils.py"  # which asks for the launcher's numbers by right
_ABOUT_RANK = re.compile(r"rank|is_first|is_main|master", re.I)


@dataclass(frozen=True)
class Place:
    """A line of a module.

    `text` is its source. `branch` is the condition of the innermost `if` it stands in, within its function;
    `of_rank` tells that one of those conditions is about the rank; `in_loop` that it stands in a loop. All empty
    where nothing is known.
    """

    text: str = ""
    branch: str = ""
    of_rank: bool = False
    in_loop: bool = False


def place(frame: Frame, code: Path) -> Place:
    """Look up a frame. What a rank says about its frames is not trusted: only files in `code` itself are read."""
    lines = read_lines(frame.file, code)
    if not 1 <= frame.line <= len(lines):
        return Place()
    text = lines[frame.line - 1].strip()
    tree = parsed("\n".join(lines))
    try:
        around = list(_around(tree, frame.line)) if tree else []
    except RecursionError:  # an expression of a thousand terms
        around = []
    functions = [i for i, node in enumerate(around) if isinstance(node, _Function)]
    inside = around[functions[-1] :] if functions else around
    branches = [_unparsed(node.test) for node in inside if isinstance(node, ast.If | ast.IfExp)]
    return Place(
        text=text,
        branch=branches[-1] if branches else "",
        of_rank=any(_ABOUT_RANK.search(searchable(branch)) for branch in branches),
        in_loop=any(isinstance(node, ast.For | ast.While) for node in inside),
    )


def read_lines(file: str, code: Path) -> list[str]:
    """The lines of a file beside the modules, or none: no links, no other folders, none that is too large."""
    path = Path(file)
    folders = {(code / module_file(name)).parent for name in ALL_MODULES}
    if path.parent not in folders or path.parent.is_symlink() or path.name in ("", ".", ".."):
        return []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8", errors="replace") as source:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_SOURCE_BYTES:
                return []
            return [line.rstrip("\n") for line in source_lines(source.read(MAX_SOURCE_BYTES))]
    except (OSError, ValueError):
        return []


def _around(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """The nodes that the line lies in, from the outermost. The condition of an `if` is not in its branch."""
    for child in ast.iter_child_nodes(node):
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is None or last is None or not first <= line <= last:
            continue
        if not (isinstance(child, ast.If) and line <= (child.test.end_lineno or first) and first < _body(child)):
            yield child
        yield from _around(child, line)


def _unparsed(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def _body(node: ast.If) -> int:
    return node.body[0].lineno


def at_line(file: str, line: int, code: Path) -> str:
    """A line of a file in the student's folder, with its text: "train.py:41  loss = ..."."""
    name = Path(file).name
    folder = code.resolve()
    folders = dict.fromkeys((folder / module_file(module)).parent for module in ALL_MODULES)
    lines = next((found for one in folders if (found := read_lines(str(one / name), folder))), [])
    text = one_line(lines[line - 1], 80) if 1 <= line <= len(lines) else ""
    return f"{name}:{line}" + (f"  {text}" if text else "")


def asks_for_its_node(exercise: str, code: Path) -> str:
    """The first line with the name of a variable that numbers the processes of one node; "" where none has one.

    distributed_utils.py asks for them by right, and its checks say what the launcher sets.
    """
    return _first_line(exercise, code, lambda part: isinstance(part, ast.Constant) and part.value in LOCAL)


def counts_gpus(exercise: str, code: Path) -> str:
    """The first line that asks how many GPUs the node has; "" where none does."""
    return _first_line(exercise, code, lambda part: isinstance(part, ast.Attribute) and part.attr == _COUNTS)


def _first_line(exercise: str, code: Path, wanted: Callable[[ast.AST], bool]) -> str:
    file, folder = syllabus()[exercise].file, code.resolve()
    tree = parsed("\n".join(read_lines(str(folder / file), folder))) if file != _SETS_UP else None
    line = min(
        (getattr(part, "lineno", 0) for part in (ast.walk(tree) if tree else ()) if wanted(part)), default=0
    )
    return at_line(file, line, code) if line else ""


def keeps_errors(exercise: str, code: Path) -> list[tuple[int, int]]:
    """Where a function of the exercise's file catches any error and raises none: the `try`, the `except`."""
    folder = code.resolve()
    tree = parsed("\n".join(read_lines(str(folder / syllabus()[exercise].file), folder)))
    functions = [part for part in (ast.walk(tree) if tree else ()) if isinstance(part, _Function)]
    guards = [part for one in functions for part in ast.walk(one) if isinstance(part, ast.Try | ast.With)]
    return sorted({(one.lineno, hidden[0]) for one in guards if (hidden := hidden_by(one))})


Ways = Mapping[tuple[int, str], frozenset[bool]]  # line and text of a condition -> how it went


def ways_in(file: str, conducts: Iterable[Conduct]) -> Ways:
    """Which ways the conditions of a file went, on any rank."""
    found: dict[tuple[int, str], frozenset[bool]] = {}
    for conduct in conducts:
        for (path, line, text), ways in conduct.conditions:
            if Path(path).name == Path(file).name:
                found[line, text] = found.get((line, text), frozenset()) | ways
    return found


def kept_from(function: ast.AST, number: int, ways: Ways) -> int:
    """The line that kept another one of the function from being reached; 0 where none is known to.

    That is an `if` around it that went the other way, or the line of that way that makes what this one makes; or
    an `if` above it, with a `return` or `raise` in the way it went.
    """
    for part in sorted(_of_own(function), key=lambda one: one.lineno):
        went = _went(part.test, ways)
        for way, branch in ((True, part.body), (False, part.orelse)):
            if not went or not branch:
                continue
            if branch[0].lineno <= number <= (branch[-1].end_lineno or 0) and way not in went:
                return _made_instead(part, number) or part.lineno
            ended = isinstance(branch[-1], ast.Return | ast.Raise) and (part.end_lineno or number) < number
            if ended and went == {way}:
                return part.lineno
    return 0


def _made_instead(part: ast.If, number: int) -> int:
    """The line of the other branch that gives a value to the variable to which this line gives one; 0: none."""
    made = [one for one in ast.walk(part) if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)]
    names = [one.targets[0].id for one in made if one.lineno == number]  # type: ignore[attr-defined]
    orelse = part.orelse[0].lineno if part.orelse else 0
    others = [one.lineno for one in made if (one.lineno < orelse) != (number < orelse)]
    alike = [one.lineno for one in made if one.targets[0].id in names and one.lineno in others]  # type: ignore[attr-defined]
    return alike[0] if alike and orelse else 0


_OF_FIXED_LENGTH = ("range", "enumerate", "reversed", "list", "tuple")


def fixed_loop(tree: ast.AST, number: int) -> int:
    """The line of a loop that goes through numbers of the code's own, where a line in it takes an item by them.

    0 where that line is in no such loop.
    """
    constants, others = (
        {
            target.id
            for part in ast.walk(tree)
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant) == constant
            for target in part.targets
            if isinstance(target, ast.Name)
        }
        for constant in (True, False)
    )
    found = 0
    for part in ast.walk(tree):
        loops = [part] if isinstance(part, ast.For) else getattr(part, "generators", [])
        if not loops or not part.lineno <= number <= (part.end_lineno or 0):  # type: ignore[attr-defined]
            continue
        for loop in loops:
            names = _names(loop.iter)
            counted = any(isinstance(one, ast.Constant) for one in ast.walk(loop.iter)) or names & constants
            if (
                counted
                and names <= {*_OF_FIXED_LENGTH, *(constants - others)}
                and _taken(part, number, loop.target)
            ):
                found = max(found, loop.iter.lineno)
    return found


def _taken(around: ast.AST, number: int, target: ast.expr) -> bool:
    """Whether a line in it takes an item by a loop's variable, as blocks[i] does."""
    items = [one for one in ast.walk(around) if isinstance(one, ast.Subscript) and one.lineno == number]
    return any(_names(one.slice) & _names(target) for one in items)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


# Errors in the program, which nobody catches on purpose.
_MISTAKES = ("TypeError", "NameError", "UnboundLocalError", "AttributeError", "AssertionError")
# Errors that tell something, and that are asked for by many a right `except`.
_EXPECTED = (
    *("OSError", "KeyError", "ValueError", "IndexError", "StopIteration", "NotImplementedError"),
    *("ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "OutOfMemoryError"),
)
# With these, PyTorch refuses what it was handed. That there is no group yet is asked for by many a right `except`.
_REFUSALS, _NO_GROUP = ("ValueError", "RuntimeError", "IndexError"), "process group has not been initialized"


def is_a_mistake(caught: Caught, missing: bool) -> bool:
    """Whether it was not meant to be caught: an OSError of a check's own, say, is told of by that check.

    Args:
        missing: whether what is wrong is that something was not done.
    """
    if caught.type in _MISTAKES:
        return True
    if "torch" in Path(caught.raised_in).parts and caught.type in _REFUSALS and _NO_GROUP not in caught.message:
        return caught.broad or missing
    return caught.broad and caught.type not in _EXPECTED


def _of_own(function: ast.AST) -> list[ast.If]:
    """The `if`s of a function that are in no other function within it."""
    found: list[ast.If] = []
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, _Function | ast.Lambda | ast.ClassDef):
            found += [child] if isinstance(child, ast.If) else []
            found += _of_own(child)
    return found


def _went(test: ast.expr, ways: Ways) -> frozenset[bool]:
    """How a condition went; of `a and b`, each of them is noted."""
    if not isinstance(test, ast.BoolOp):
        return ways.get((test.lineno, text_of(test)), frozenset())
    parts = [_went(one, ways) for one in test.values]
    ends = isinstance(test.op, ast.Or)  # with this no other one is asked
    early = {ends} if any(ends in part for part in parts) else set()
    return frozenset(early | ({not ends} & parts[-1]))
