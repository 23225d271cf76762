"""Where in the student's file to look, around a function: in its calls, its helpers, and beside all functions."""

import ast
import re
from collections.abc import Collection
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import RETURN, Look, line_of
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


def first_use(look: Look, function: str) -> str:
    """The place where what a call of a function gives is used first; "" where there is no such call.

    The call's own line, where more is done there than to give the result a name.
    """
    _, _, node = look.source()
    for call in calls_of(node, function) if node else ():
        made = [one for one in ast.walk(node) if isinstance(one, ast.Assign) and call in ast.walk(one.value)]  # type: ignore[arg-type]
        value = made[0].value if made else call
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # .double() and the like
            value = value.func.value
        if not made or value is not call or not isinstance(made[0].targets[0], ast.Name):
            return look.line(call.lineno)
        end = made[0].end_lineno or made[0].lineno
        first = _read_after(node, made[0].targets[0].id, end) or call.lineno  # type: ignore[arg-type]
        for one in ast.walk(node):  # type: ignore[arg-type]
            kept = isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "append"
            if kept and one.lineno == first and isinstance(one.args[0], ast.Name):  # type: ignore[attr-defined]
                first = _read_after(node, root_of(one.func), first) or first  # type: ignore[arg-type,attr-defined]
        return look.line(first)
    return ""


def _read_after(node: ast.AST, name: str, line: int) -> int:
    """The first line below another that reads a variable; 0 where none does."""
    named = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id == name]
    return min((one.lineno for one in named if isinstance(one.ctx, ast.Load) and one.lineno > line), default=0)


def skips(look: Look, place: str) -> str:
    """The `if` that a line of a loop is under, or the one with a `continue` before it; "" without one."""
    _, _, node = look.source()
    number = line_of(place)
    for loop in ast.walk(node) if node else ():
        if not isinstance(loop, ast.For | ast.While) or not loop.lineno <= number <= (loop.end_lineno or 0):
            continue
        for one in ast.walk(loop):
            if not isinstance(one, ast.If):
                continue
            inside = one.lineno <= number <= (one.end_lineno or 0)
            passed_by = one.lineno < number and any(isinstance(part, ast.Continue) for part in ast.walk(one))
            if inside or passed_by:
                return look.line(one.lineno)
    return ""


def made_under(look: Look, key: str) -> str:
    """Where the value is made that is kept under a key, in a dict or with `[key] =`; "" where that is not said."""
    _, _, node = look.source()
    for part in ast.walk(node) if node else ():
        value: ast.expr | None = None
        if isinstance(part, ast.Dict):
            pairs = zip(part.keys, part.values, strict=True)
            value = next(
                (one for name, one in pairs if isinstance(name, ast.Constant) and name.value == key), None
            )
        elif isinstance(part, ast.Assign):
            under = [one.slice for one in part.targets if isinstance(one, ast.Subscript)]
            kept = [one.value for one in under if isinstance(one, ast.Constant)]
            value = part.value if key in kept else None
        if value is None or isinstance(value, ast.Constant):
            continue
        lines = assignments(node, value.id) if node and isinstance(value, ast.Name) else []
        return look.line(max((line for line in lines if line < value.lineno), default=value.lineno))
    return ""


def chosen_key(look: Look) -> str:
    """Where the key is chosen under which something is kept or added, `times[key] += ...`; "" without one."""
    _, _, node = look.source()
    for part in ast.walk(node) if node else ():
        target = part.target if isinstance(part, ast.AugAssign) else None
        if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Constant):
            continue
        if not isinstance(target.slice, ast.Name) or node is None:
            return look.line(target.lineno)
        name = target.slice.id
        values = {
            one.lineno: one.value
            for one in ast.walk(node)
            if isinstance(one, ast.Assign)
            and any(isinstance(it, ast.Name) and it.id == name for it in one.targets)
        }
        # Under a name for what a loop goes through, it is chosen where that loop begins.
        looped = [one.id for one in values.values() if isinstance(one, ast.Name)]
        lines = [line for one in (name, *looped) for line in assignments(node, one)]
        chosen = [line for line in lines if not isinstance(values.get(line), ast.Constant | ast.Name)]
        return look.line(min(chosen or lines, default=target.lineno))
    return ""


def own_order(look: Look, names: Collection[str], but: str) -> str:
    """An order that the function gives to these names: a list or tuple of them, or a dict that ranks them.

    In the function, or in a value of the module that it reads, other than `but`; "" where there is none.
    """
    _, tree, _ = look.source()
    functions = _with_helpers(look)
    read = {part.id for node in functions for part in ast.walk(node) if isinstance(part, ast.Name)} - {but}
    outside: list[ast.stmt] = [
        part
        for part in (tree.body if tree else ())
        if isinstance(part, ast.Assign) and read & {getattr(target, "id", "") for target in part.targets}
    ]
    for part in (part for node in (*functions, *outside) for part in ast.walk(node)):
        if not isinstance(part, ast.Dict | ast.List | ast.Tuple):
            continue
        if isinstance(part, ast.Dict):
            ranks = [one.value for one in part.values if isinstance(one, ast.Constant)]
            said: list[Any] = part.keys if len(set(ranks)) > 1 else []
        else:
            said = part.elts
        if {one.value for one in said if isinstance(one, ast.Constant)} >= set(names):
            return look.line(part.lineno)
    return ""


def returned_from(look: Look) -> str:
    """Where the variable was made that the function returns; its last `return`, where it returns none."""
    _, _, node = look.source()
    returns = [part for part in ast.walk(node) if isinstance(part, ast.Return)] if node else []
    last = max(returns, key=lambda one: one.lineno, default=None)
    names = [one.id for one in ast.walk(last) if isinstance(one, ast.Name)] if last else []
    made = [line for name in names for line in assignments(node, name)] if node else []
    return look.line(min(made)) if made else look(RETURN)


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
