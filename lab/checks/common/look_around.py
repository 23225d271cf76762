"""Where in the student's file to look, around a function: in its calls, its helpers, and beside all functions."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.syntax import assignments, calls_of, root_of

_Function = ast.FunctionDef | ast.AsyncFunctionDef

OF_EXERCISES = ("read_launch_environment", "setup", "cleanup", "is_main_process")  # what others of them call


def argument_of(look: Look, function: str, keyword: str, position: int | None = None) -> str:
    """The place of an argument of a call, or of what has made the variable that is handed on as it is.

    "" where there is no such call or argument.
    """
    _, _, node = look.source()
    for call in calls_of(node, function) if node else ():
        given = {one.arg: one.value for one in call.keywords}
        by_place = call.args[position : position + 1] if position is not None else []
        for value in [*filter(None, [given.get(keyword)]), *by_place]:
            if isinstance(value, ast.Name) and node and assignments(node, value.id):
                return look.source_of(function, keyword, position)
            return look.line(value.lineno)
    return ""


def swallows(look: Look) -> str:
    """Where the function, or a helper of it, catches an error and raises none; "" where it does so nowhere."""
    for part in (part for node in _with_helpers(look) for part in ast.walk(node)):
        suppresses = isinstance(part, ast.With) and "suppress" in ast.unparse(part.items[0])
        catches = isinstance(part, ast.ExceptHandler) and not any(
            isinstance(one, ast.Raise) for one in ast.walk(part)
        )
        if suppresses or catches:
            return look.line(part.lineno)  # type: ignore[attr-defined]
    return ""


def beside(look: Look, pattern: str) -> str:
    """The first line of the file outside of all functions that the pattern matches; "" where there is none."""
    lines, tree, _ = look.source()
    for part in tree.body if tree else ():
        if not isinstance(part, _Function | ast.ClassDef):
            for number in range(part.lineno, (part.end_lineno or part.lineno) + 1):
                if re.search(pattern, searchable(lines[number - 1].split("#")[0])):
                    return look.line(number)
    return ""


def in_helpers(look: Look, pattern: str) -> str:
    """The first line like this of the function, or of a helper that it calls; "" where there is none.

    Helpers are functions of the file, and of a method the other methods of its class.
    """
    names = [look.function, *(node.name for node in _with_helpers(look)[1:])]
    owner, dot, _ = look.function.rpartition(".")
    names += [f"{owner}.{name}" for name in _methods(look, {owner})] if dot else []
    return next((place for name in names if line_of(place := look.into(name)(pattern))), "")


def in_classes(look: Look, pattern: str) -> str:
    """The first line like this in a method of a class of the file that the function uses; "" without one."""
    _, tree, _ = look.source()
    classes = [one.name for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef)]
    names = [f"{owner}.{name}" for owner in filter(look.mentions, classes) for name in _methods(look, {owner})]
    return next((place for name in names if line_of(place := look.into(name)(pattern))), "")


def kept_default(look: Look) -> str:
    """What outlives a call of the function or of a helper: a default that is no constant; "" where none is."""
    names = [node.name for node in _with_helpers(look)]
    return next((place for name in names if (place := look.into(name).kept_default())), "")


def condition_of(look: Look, error: dict[str, Any]) -> str:
    """The place of the `if` around the line of the function that raised an error; "" where it has none."""
    return look.under(re.escape(error["text"])) if error["text"] else ""


def display_around(look: Look, number: int) -> str:
    """Where the dict, list or tuple begins that a line of the function stands in; "" where there is none."""
    _, _, node = look.source()
    around = [
        part.lineno
        for part in (ast.walk(node) if node else ())
        if isinstance(part, ast.Dict | ast.List | ast.Tuple) and part.lineno <= number <= (part.end_lineno or 0)
    ]
    return look.line(min(around)) if around else ""


def value_outside(look: Look, pattern: str) -> str:
    """The place of a value of the module that the function or a helper reads; "" where no such line has one."""
    lines, tree, _ = look.source()
    read = {part.id for node in _with_helpers(look) for part in ast.walk(node) if isinstance(part, ast.Name)}
    for part in tree.body if tree else ():
        if isinstance(part, ast.Assign | ast.AnnAssign) and re.search(pattern, searchable(lines[part.lineno - 1])):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if read & {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}:
                return look.line(part.lineno)
    return ""


def loop_around(look: Look, numbers: Sequence[int]) -> str:
    """The place of the loop around the first of some lines that stands in one; "" where none does.

    Or of the line that made what the loop goes through.
    """
    _, _, node = look.source()
    for number in numbers:
        loops = [
            part
            for part in (ast.walk(node) if node else ())
            if isinstance(part, ast.For | ast.While) and part.lineno < number <= (part.end_lineno or 0)
        ]
        if not loops:
            continue
        loop = max(loops, key=lambda part: part.lineno)
        through = ast.walk(loop.iter) if isinstance(loop, ast.For) else ()
        names = [part.id for part in through if isinstance(part, ast.Name)]
        made = [line for name in names for line in assignments(node, name) if line < loop.lineno]  # type: ignore[arg-type]
        return look.line(max(made, default=loop.lineno))
    return ""


def list_of(look: Look, number: int) -> str:
    """The place where the list was made that a line appends to; "" where it appends to none."""
    _, _, node = look.source()
    for call in calls_of(node, "append") if node else ():
        if call.lineno <= number <= (call.end_lineno or 0):
            made = assignments(node, root_of(call.func))  # type: ignore[arg-type]
            return look.line(min(made)) if made else ""
    return ""


def lost_at(look: Look, held: Sequence[dict[str, Any]]) -> str:
    """The place of the first line that reads a variable with a NaN, and makes a number without one of it.

    Or else of the first `if` that reads such a variable, and whose branch is taken; or that compares one; "" where
    there is none of them.

    Args:
        held: the lines in their order; `nan`: which variables held one when the line was done; `numbers`: which
            held others.
    """
    _, tree, _ = look.source()
    statements = [part for part in ast.walk(tree) if isinstance(part, ast.stmt)] if tree else []
    by_line = {part.lineno: part for part in statements}
    turned = compared = 0
    for before, now, after in zip([{"nan": []}, *held], held, [*held[1:], {"line": 0}], strict=False):
        statement = by_line.get(now["line"])
        if isinstance(statement, ast.If):
            first, read = statement.body[0].lineno, names_in(statement.test)
            if not turned and read & set(now["nan"]) and after["line"] == first:
                turned = statement.lineno
            test = statement.test
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
            if not compared and any(isinstance(one, ast.Name) and one.id in now["nan"] for one in sides):
                compared = statement.lineno
        elif isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            made = {name for target in targets for name in names_in(target)}
            read = names_in(statement.value) if statement.value else set()
            if read & {*before["nan"], *now["nan"]} and made & set(now["numbers"]) and not made & set(now["nan"]):
                return look.line(statement.lineno)
    return look.line(turned or compared) if turned or compared else ""


def last_use(look: Look, names: Sequence[str]) -> int:
    """The line of the function's last statement that uses what some variables have held first; 0 where none does.

    Checks and messages are none.
    """
    _, _, node = look.source()
    held, found = set(names), 0
    for part in sorted(ast.walk(node), key=lambda part: getattr(part, "lineno", 0)) if node else ():
        if isinstance(part, ast.For) and names_in(part.iter) & held:
            held |= names_in(part.target)
        if not isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
            continue
        said = isinstance(part.value, ast.Call) and getattr(part.value.func, "id", "") in ("print", "len")
        if part.value is None or said or not names_in(part.value) & held:
            continue
        found = part.lineno
        targets = part.targets if isinstance(part, ast.Assign) else []
        held |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def assigned_at(look: Look, names: Sequence[str]) -> str:
    """The place of the first assignment in the function to one of some variables or attributes; "" without one."""
    _, _, node = look.source()
    lines = [
        part.lineno
        for part in (ast.walk(node) if node else ())
        if isinstance(part, ast.Name | ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and (part.id if isinstance(part, ast.Name) else part.attr) in names
    ]
    return look.line(min(lines)) if lines else ""


def names_in(value: ast.AST) -> set[str]:
    """The variables in an expression."""
    return {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}


def _methods(look: Look, owners: set[str]) -> list[str]:
    _, tree, _ = look.source()
    classes = [one for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef) and one.name in owners]
    return [part.name for one in classes for part in one.body if isinstance(part, _Function)]


def _with_helpers(look: Look) -> list[_Function]:
    """The function, and those of the file that it calls and that no exercise asks for."""
    _, tree, node = look.source()
    called = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node else set()
    helpers = [
        part
        for part in (tree.body if tree else ())
        if isinstance(part, _Function) and part.name in called - set(OF_EXERCISES) and part is not node
    ]
    return [node, *helpers] if node else []
