"""Where in the student's file to look, around a function: in its calls, its helpers, and beside all functions."""

import ast
import re
from collections.abc import Callable
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.syntax import CHANGING, assignments, calls_of, root_of, shared_attributes, written_to

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


def first_of(look: Look, find: Callable[[_Function], list[int]]) -> str:
    """The place of the first line of the function that is found in it; "" where there is none."""
    _, _, node = look.source()
    lines = find(node) if node else []
    return look.line(lines[0]) if lines else ""


def without_argument(look: Look, function: str, keyword: str, position: int) -> str:
    """The place of the first call that is not given an argument, in the function or a helper; "" where none is.

    A call that unpacks something may be given anything.
    """
    for call in (call for node in with_helpers(look) for call in calls_of(node, function)):
        unpacks = any(isinstance(one, ast.Starred) for one in call.args)
        if len(call.args) <= position and not unpacks and {keyword, None}.isdisjoint(k.arg for k in call.keywords):
            return look.line(call.lineno)
    return ""


def for_around(look: Look, place: str) -> str:
    """The place of the innermost `for` around a place in the function, where it has one; else that place."""
    _, _, node = look.source()
    number = line_of(place)
    around = [
        part.lineno
        for part in (ast.walk(node) if node else ())
        if isinstance(part, ast.For) and part.lineno < number <= (part.end_lineno or 0)
    ]
    return look.line(max(around)) if around else place


def swallows(look: Look) -> str:
    """Where the function, or a helper of it, catches an error and raises none; "" where it does so nowhere."""
    for part in (part for node in with_helpers(look) for part in ast.walk(node)):
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
    names = [look.function, *(node.name for node in with_helpers(look)[1:])]
    owner, dot, _ = look.function.rpartition(".")
    names += [f"{owner}.{name}" for name in _methods(look, {owner})] if dot else []
    return next((place for name in names if line_of(place := look.into(name)(pattern))), "")


def leads_to(look: Look, pattern: str) -> str:
    """The first line of the function that is like this, or calls a helper with such a line; "" where none does.

    Helpers are those of the file, and functions within the function.
    """
    lines, _, node = look.source()
    if node is None:
        return ""

    def has(part: ast.AST) -> bool:
        first, last = getattr(part, "lineno", 0), getattr(part, "end_lineno", 0)
        return any(re.search(pattern, searchable(line.split("#")[0])) for line in lines[first:last])

    inner = [part for part in ast.walk(node) if isinstance(part, _Function) and part is not node]
    within = {number for part in inner for number in range(part.lineno, (part.end_lineno or 0) + 1)}
    helpers = [part.name for part in (*inner, *with_helpers(look)[1:]) if has(part)]
    called = "|".join(rf"(?<!\.)\b{re.escape(name)}\(" for name in helpers)
    for number in range(node.body[0].lineno, (node.end_lineno or 0) + 1):
        text, wanted = lines[number - 1].split("#")[0], f"(?:{pattern})" + (f"|{called}" if called else "")
        if number not in within and re.search(wanted, searchable(text)):
            return look.line(number)
    return ""


def in_classes(look: Look, pattern: str) -> str:
    """The first line like this in a method of a class of the file that the function uses; "" without one."""
    _, tree, _ = look.source()
    classes = [one.name for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef)]
    names = [f"{owner}.{name}" for owner in filter(look.mentions, classes) for name in _methods(look, {owner})]
    return next((place for name in names if line_of(place := look.into(name)(pattern))), "")


def kept_default(look: Look) -> str:
    """What outlives a call of the function or of a helper: a default that is no constant; "" where none is."""
    _, tree, _ = look.source()
    classes = [one.name for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef)]
    names = [node.name for node in with_helpers(look)]
    names += [f"{name}.__init__" for name in classes if look.mentions(name)]
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


_HANDS_ON = ("device", "int", "str")  # calls that make the same value another kind of thing


def origin_of(look: Look, *functions: str) -> str:
    """The place where a value was made that one of these functions got, the first that is called; "" without one.

    It is followed from variable to variable, and through what hands it on, as torch.device("cuda", index) does.
    """
    _, _, node = look.source()
    calls = [call for function in functions for call in (calls_of(node, function) if node else ())]
    if not node or not calls:
        return ""
    value: ast.expr = calls[0]
    made = {
        part.lineno: (part.targets[0].id, part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
    }
    hands_on = (*_HANDS_ON, *functions)
    while True:
        names = _handed_on(value, hands_on)
        before = [line for line in made if line < value.lineno and made[line][0] in names]
        if not before:
            return look.line(value.lineno)
        value = made[max(before)][1]


def _handed_on(value: ast.AST, functions: tuple[str, ...]) -> set[str]:
    """The variables that a value is, or that it hands on as they are."""
    if isinstance(value, ast.Name):
        return {value.id}
    inner: list[ast.AST] = []
    if isinstance(value, ast.JoinedStr):
        inner = [part.value for part in value.values if isinstance(part, ast.FormattedValue)]
    elif isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in functions:
        inner = [*value.args, *(keyword.value for keyword in value.keywords)]
    return {name for part in inner for name in _handed_on(part, functions)}


def on_itself(look: Look) -> str:
    """Where a method first writes to an attribute of its object, which outlives the call; "" if nowhere."""
    _, _, node = look.source()
    lines = [
        part.lineno
        for part in (ast.walk(node) if node else ())
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and root_of(part) == "self"
    ]
    return look.line(min(lines)) if lines else ""


def reads_itself(look: Look) -> str:
    """Where a method first names an attribute of its object to which it writes, to read it or not; "" if nowhere.

    Also as getattr(self, "name", ...).
    """
    _, _, node = look.source()
    parts = list(ast.walk(node)) if node else []
    written = {
        part.attr
        for part in parts
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and root_of(part) == "self"
    }
    lines = [part.lineno for part in parts if isinstance(part, ast.Attribute) and part.attr in written]
    lines += [part.lineno for part in parts if isinstance(part, ast.Constant) and part.value in written]
    return look.line(min(lines)) if lines else ""


def value_outside(look: Look, pattern: str) -> str:
    """The place of a value of the module that the function or a helper reads; "" where no such line has one."""
    lines, tree, _ = look.source()
    read = {part.id for node in with_helpers(look) for part in ast.walk(node) if isinstance(part, ast.Name)}
    for part in tree.body if tree else ():
        if isinstance(part, ast.Assign | ast.AnnAssign) and re.search(pattern, searchable(lines[part.lineno - 1])):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if read & {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}:
                return look.line(part.lineno)
    return ""


def kept_at(look: Look) -> str:
    """Where that is made which outlives a call of the function, and is used by it or by a helper; "" without one.

    A default argument, an attribute of a class, a value of the module which may change, or an attribute that a
    function gives to another.
    """
    _, tree, _ = look.source()
    if place := kept_default(look):
        return place
    functions = with_helpers(look)
    parts = [part for node in functions for part in ast.walk(node)]
    read = {part.id for part in parts if isinstance(part, ast.Name)}
    changed = {name for part in parts if isinstance(part, ast.Global) for name in part.names}
    if tree and (shared := shared_attributes(tree, read)):
        return look.line(shared[0])
    made: list[tuple[bool, int]] = []
    for part in tree.body if tree else ():
        if isinstance(part, ast.Assign | ast.AnnAssign):
            names = {root_of(one) for one in (part.targets if isinstance(part, ast.Assign) else [part.target])}
            if names & changed or (names & read and isinstance(part.value, CHANGING)):
                written = {root_of(value) for node in functions for value in written_to(node)}
                again = [
                    one.lineno for one in parts if isinstance(one, ast.Assign) and ast.unparse(one.value) in names
                ]
                made.append((names.isdisjoint(changed | written), min(again, default=part.lineno)))
    if made and not min(made)[0]:
        return look.line(min(made)[1])
    owners = {part.name for part in (tree.body if tree else ()) if isinstance(part, _Function | ast.ClassDef)}
    given = [value for node in functions for value in written_to(node) if root_of(value) in owners]
    lines = [value.lineno for value in given] or [line for _, line in made]
    return look.line(min(lines)) if lines else ""


def _methods(look: Look, owners: set[str]) -> list[str]:
    _, tree, _ = look.source()
    classes = [one for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef) and one.name in owners]
    return [part.name for one in classes for part in one.body if isinstance(part, _Function)]


def with_helpers(look: Look) -> list[_Function]:
    """The function, and those of the file that it calls and that no exercise asks for."""
    _, tree, node = look.source()
    called = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node else set()
    helpers = [
        part
        for part in (tree.body if tree else ())
        if isinstance(part, _Function) and part.name in called - set(OF_EXERCISES) and part is not node
    ]
    return [node, *helpers] if node else []


def is_loop(look: Look, number: int) -> bool:
    """Whether a loop of the file begins in a line, or one that is written in it as a part of something else."""
    _, tree, _ = look.source()
    loops = ast.For | ast.While | ast.comprehension
    parts = [part for part in ast.walk(tree) if isinstance(part, loops)] if tree else []
    return number in {part.iter.lineno if isinstance(part, ast.comprehension) else part.lineno for part in parts}
