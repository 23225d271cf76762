"""Where in the student's function a value is made, chosen, used, or lost."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.look_around import is_loop, with_helpers
from lab.checks.common.syntax import assignments, calls_of, names_in, root_of

_Function = ast.FunctionDef | ast.AsyncFunctionDef


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
    """The `if` that a line of a loop is under, or that leaves the round or the loop before it; "" without one."""
    _, _, node = look.source()
    number = line_of(place)
    for loop in ast.walk(node) if node else ():
        if not isinstance(loop, ast.For | ast.While) or not loop.lineno <= number <= (loop.end_lineno or 0):
            continue
        for one in ast.walk(loop):
            if not isinstance(one, ast.If):
                continue
            inside = one.lineno <= number <= (one.end_lineno or 0)
            leaves = any(isinstance(part, ast.Continue | ast.Break) for part in ast.walk(one))
            passed_by = one.lineno < number and leaves
            if inside or passed_by:
                return look.line(one.lineno)
    return ""


def unreached(look: Look, place: str) -> str:
    """What has kept a line of the function from being reached, where it was left without an error.

    The first `return` above it, or else the innermost `if` around it; that line itself where there is neither.
    """
    _, _, node = look.source()
    number = line_of(place)
    inner = [part for part in (ast.walk(node) if node else ()) if isinstance(part, _Function) and part is not node]
    within = {one for part in inner for one in ast.walk(part)}
    parts = [part for part in (ast.walk(node) if node and number else ()) if part not in within]
    returns = [part.lineno for part in parts if isinstance(part, ast.Return) and part.lineno < number]
    around = [
        part for part in parts if isinstance(part, ast.If) and part.lineno < number <= (part.end_lineno or 0)
    ]
    if returns:
        return look.line(min(returns))
    return look.line(max(part.lineno for part in around)) if around else place


def falls_off(look: Look) -> str:
    """The last line of the function, where that is no `return`: whoever comes there gets None; "" where it is."""
    _, _, node = look.source()
    if node is None or isinstance(node.body[-1], ast.Return | ast.Raise | ast.If | ast.Try | ast.With):
        return ""
    return look.line(node.body[-1].lineno)


def made_of_one(look: Look) -> str:
    """Where a variable of the mesh's shape is given the value 1; "" where none is, or the mesh itself says it."""
    _, _, node = look.source()
    for call in calls_of(node, "init_device_mesh") if node else ():
        names = {part.id for part in ast.walk(call) if isinstance(part, ast.Name)}
        if any(isinstance(part, ast.Constant) and part.value == 1 for part in ast.walk(call)):
            return ""
        for part in ast.walk(node) if node else ():
            if not isinstance(part, ast.Assign) or part.lineno >= call.lineno:
                continue
            target, values = part.targets[0], ast.walk(part.value)
            ones = [one for one in values if isinstance(one, ast.Constant) and one.value == 1]
            if ones and isinstance(target, ast.Name) and target.id in names:
                return look.line(part.lineno)
    return ""


def kept_for(look: Look, call: str, *, but: str) -> str:
    """Where what a call is given is made of something that self keeps, `but` of these; "" without such a line."""
    kept = rf"= ?self\.(?!{but})\w+"
    place = look.source_of(call, "input", 0, like=kept)
    return place if re.search(kept, searchable(place)) else ""


def returned_at(look: Look, number: int) -> str:
    """Where the variable was made that the function returns as its first, or second, ... value.

    Its last `return`, where that is no variable.
    """
    _, _, node = look.source()
    for part in reversed(list(ast.walk(node)) if node else []):
        value = part.value if isinstance(part, ast.Return) else None
        if isinstance(value, ast.Tuple) and number < len(value.elts):
            one = value.elts[number]
            made = assignments(node, one.id) if isinstance(one, ast.Name) and node else []
            return look.line(max(made, default=one.lineno))
    return look(RETURN)


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


def fixed_number(look: Look) -> str:
    """Where a name is bound to a fixed number that a range() goes by, here or in the module; "" where none is."""
    _, tree, node = look.source()
    counted = {part for call in (calls_of(node, "range") if node else ()) for part in names_in(call)}
    for body in (node, tree):
        for part in ast.walk(body) if body else ():
            if not isinstance(part, ast.Assign) or names_in(part.value):
                continue
            if counted & {name for target in part.targets for name in names_in(target)}:
                return look.line(part.lineno)
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


def passed_over(look: Look, taken_at: int, used: str) -> str:
    """Where a round is lost: the line that took it, or what passes by the line where it should be used.

    Args:
        taken_at: the line that took what was not used; 0 where it was never taken, and the loop ended before.
        used: what the line looks like that uses it.
    """
    if taken_at and not is_loop(look, taken_at):
        return look.line(taken_at)
    passed_by = skips(look, look(used)) if taken_at else ""
    return passed_by or look.left_early() or loop_around(look, [line_of(look(used))])


def late_bound(look: Look) -> str:
    """Where a loop makes a function that reads a variable of the loop when it is called; "" where none does."""
    _, _, node = look.source()
    lines = []
    for loop in (part for part in ast.walk(node) if isinstance(part, ast.For)) if node else ():
        names = [part for part in ast.walk(loop) if isinstance(part, ast.Name)]
        changed = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        for part in ast.walk(loop):
            if isinstance(part, ast.Lambda | _Function):
                body = [part.body] if isinstance(part, ast.Lambda) else part.body
                used = [one for inner in body for one in ast.walk(inner) if isinstance(one, ast.Name)]
                own = {one.arg for one in ast.walk(part.args) if isinstance(one, ast.arg)}
                own |= {one.id for one in used if isinstance(one.ctx, ast.Store)}
                lines += [part.lineno] if ({one.id for one in used} - own) & changed else []
    return look.line(min(lines)) if lines else ""


def overwritten(look: Look) -> str:
    """Where a loop writes over what was set before it and is read after it, and adds nothing; "" if nowhere."""
    _, _, node = look.source()
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)] if node else []
    for loop in (part for part in ast.walk(node) if isinstance(part, ast.For)) if node else ():
        first, last = loop.lineno, loop.end_lineno or loop.lineno
        before = {name.id for name in names if isinstance(name.ctx, ast.Store) and name.lineno < first}
        after = {name.id for name in names if isinstance(name.ctx, ast.Load) and name.lineno > last}
        for part in (part for part in ast.walk(loop) if isinstance(part, ast.Assign)):
            target = part.targets[0]
            if isinstance(target, ast.Name) and target.id in (before & after) - names_in(part.value):
                return look.line(part.lineno)
    return ""


def keyed_at(look: Look) -> str:
    """Where the function or a helper keeps values by a key, so that one may replace another; "" if nowhere."""
    for part in (part for node in with_helpers(look) for part in ast.walk(node)):
        stores = isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)
        if isinstance(part, ast.DictComp) or (stores and not isinstance(part.slice, ast.Slice | ast.Constant)):  # type: ignore[attr-defined]
            return look.line(part.lineno)  # type: ignore[attr-defined]
    return ""
