"""What Look asks of a source's syntax tree, which is read and never run."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.base.source import MAX_SOURCE_BYTES, parsed, source_lines

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def calls_of(node: ast.AST, function: str) -> list[ast.Call]:
    """The calls of a function, by its last name, by line; functools.partial(function, ...) is one."""
    found = []
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = ast.unparse(part.func).rpartition(".")[2]
        if name == "partial" and part.args:
            name = ast.unparse(part.args[0]).rpartition(".")[2]
            part = ast.copy_location(ast.Call(part.func, part.args[1:], part.keywords), part)
        if name == function:
            found.append(part)
    return sorted(found, key=lambda call: call.lineno)


def assignments(node: ast.AST, name: str) -> list[int]:
    """The lines that assign to a variable."""
    return [
        part.lineno
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
    ]


def lines_within(node: ast.AST, kind: Any) -> set[int]:
    """The lines of what stands in statements of a kind, ast.If say: in both of its branches."""
    return {
        number
        for part in ast.walk(node)
        if isinstance(part, kind)
        for statement in (*part.body, *part.orelse)
        for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }


def unpacked_at(node: ast.AST, number: int) -> int:
    """The line that made the dict which a call in a line unpacks, f(**name); 0 where none did."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and part.lineno == number:
            names = [one.value.id for one in part.keywords if not one.arg and isinstance(one.value, ast.Name)]
            return max((line for name in names for line in assignments(node, name) if line < number), default=0)
    return 0


def argument_of(tree: ast.AST, number: int) -> int:
    """The line that made the first argument of the call in a line; that line, if it is no variable; or 0."""
    functions = [part for part in ast.walk(tree) if isinstance(part, _Function)]
    around = [part for part in functions if part.lineno <= number <= (part.end_lineno or 0)]
    for part in ast.walk(around[-1]) if around else ():
        if isinstance(part, ast.Call) and part.args and part.lineno == number:
            name = part.args[0].id if isinstance(part.args[0], ast.Name) else ""
            added = {one.lineno for one in ast.walk(around[-1]) if isinstance(one, ast.AugAssign)}
            made = {line for line in assignments(around[-1], name) if line < number} - added if name else set()
            return max(made, default=number)
    return 0


def only_says(statement: ast.stmt) -> bool:
    """Whether a statement is nothing but a call of print, of warn, or of an exception's class."""
    if not isinstance(statement, ast.Expr) or not isinstance(call := statement.value, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("print", "warn", "warning", "error") or name.endswith(("Error", "Exception"))


_CHANGING = {"append", "add", "update", "setdefault", "extend", "insert"}  # methods of what holds others


def names_of(tree: ast.Module) -> set[str]:
    """The names of a module: of values, functions and classes, and of what it imports."""
    found = {part.name for part in tree.body if isinstance(part, _Function | ast.ClassDef)}
    for part in tree.body:
        if isinstance(part, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in part.names}
        targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def with_defaults(node: _Function) -> list[ast.arg]:
    """The arguments that have defaults."""
    count = len(node.args.defaults)
    by_name = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    own = [argument for argument, default in by_name if default is not None]
    return [*(([*node.args.posonlyargs, *node.args.args])[-count:] if count else []), *own]


def written_to(node: _Function) -> list[ast.expr]:
    """What a function writes to that is no variable of its own: x.y = ..., x[y] = ..., x.append(...)."""
    found: list[ast.expr] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
            found.append(part.value)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _changes(part.func):
            found.append(part.func.value)
        elif isinstance(part, ast.Call) and getattr(part.func, "id", "") == "setattr" and part.args:
            found.append(part.args[0])
    return found


def _changes(method: ast.Attribute) -> bool:
    """Whether a method changes what it is called of: append(), zero_(); nn.init.zeros_() is of a module."""
    in_place = method.attr.endswith("_") and not method.attr.startswith("_")
    return method.attr in _CHANGING or (in_place and root_of(method) not in ("torch", "nn", "init"))


CHANGING = (ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)  # what may change


def shared_attributes(tree: ast.Module, used: set[str]) -> list[int]:
    """The lines that make attributes of classes of these names which their methods change for all objects."""
    found = []
    for owner in (part for part in tree.body if isinstance(part, ast.ClassDef) and part.name in used):
        parts = list(ast.walk(owner))
        stored = [one for one in parts if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
        added = [one.target for one in parts if isinstance(one, ast.AugAssign)]
        own = {one.attr for one in stored if root_of(one) == "self" and one not in added}
        everybody = {one.attr for one in stored if root_of(one) in (owner.name, "cls", "type")}
        changed = [value for one in owner.body if isinstance(one, _Function) for value in written_to(one)]
        inner = [one for value in (*changed, *added) for one in ast.walk(value)]
        inside = {one.attr for one in inner if isinstance(one, ast.Attribute)} - own
        for part in owner.body:
            made = part.value if isinstance(part, ast.Assign | ast.AnnAssign) else None
            may = inside if isinstance(made, CHANGING) and "field(" not in ast.unparse(made) else set()
            found += [part.lineno] if made and names_in(part) & (everybody | may) else []
    return sorted(found)


def uses(body: list[ast.stmt], name: str) -> bool:
    """Whether statements use the variable, attribute or function `name`."""
    parts = [part for statement in body for part in ast.walk(statement)]
    return any(name in (getattr(part, "id", ""), getattr(part, "attr", "")) for part in parts)


def root_of(value: ast.expr) -> str:
    """The name that an expression such as x.y[z] or type(x).y begins with; "" where it begins otherwise."""
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def read(path: Path) -> list[str]:
    """The lines of a student's file; none where it cannot be read."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return []
        return [line.rstrip("\n") for line in source_lines(path.read_text(encoding="utf-8", errors="replace"))]
    except OSError:
        return []


def find(lines: list[str], function: str) -> _Function | None:
    """The definition of a function, or of what is in a class or a function, as Class.method; None without one."""
    tree = parsed("\n".join(lines))
    if tree is None:
        return None
    body: list[ast.stmt] = tree.body
    *owners, name = function.split(".")
    for owner in owners:
        inside = [node for node in body if isinstance(node, ast.ClassDef | _Function) and node.name == owner]
        body = inside[-1].body if inside else []
        if inside and not isinstance(inside[-1], ast.ClassDef):  # what it defines may stand in an `if` of it
            body = [node for node in ast.walk(inside[-1]) if isinstance(node, ast.stmt) and node is not inside[-1]]
    found = [node for node in body if isinstance(node, _Function) and node.name == name]
    return found[-1] if found else None


def rebound(node: _Function) -> list[int]:
    """The lines that give another value to a loop's variable in the loop, which changes nothing else."""
    found = []
    for loop in ast.walk(node):
        if isinstance(loop, ast.For):
            names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
            found += [line for name in names for one in loop.body for line in assignments(one, name)]
    return sorted(found)


def arguments_rebound(node: _Function) -> list[int]:
    """The lines that give another value to an argument's name, which changes nothing for the caller."""
    return sorted(line for one in node.args.args for line in assignments(node, one.arg))


def changed_in_loop(node: _Function) -> list[int]:
    """The lines that take from a list, or add to it, while a loop goes over it."""
    found = []
    for loop in ast.walk(node):
        if isinstance(loop, ast.For):
            over = loop.iter
            while (
                isinstance(over, ast.Call) and getattr(over.func, "id", "") in ("enumerate", "iter") and over.args
            ):
                over = over.args[0]
            said = ast.unparse(over)
            found += [line for part in loop.body for one, line in _changed(part) if one == said]
    return sorted(found)


def _changed(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    """What a statement takes from or adds to, as it is written there, and the line."""
    for part in ast.walk(statement):
        if isinstance(part, ast.Delete):
            yield from (
                (ast.unparse(one.value), part.lineno) for one in part.targets if isinstance(one, ast.Subscript)
            )
        elif getattr(getattr(part, "func", None), "attr", "") in ("remove", "pop", "insert", "append", "clear"):
            yield ast.unparse(part.func.value), part.lineno  # type: ignore[attr-defined]


def repeated(node: _Function) -> list[int]:
    """The lines of lists that hold one and the same list n times: [[]] * n, dict.fromkeys(names, [])."""
    made = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.Call)
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            lists = [one for one in (part.left, part.right) if isinstance(one, ast.List)]
            if any(isinstance(one, made) for display in lists for one in display.elts):
                found.append(part.lineno)
        elif isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in ("fromkeys", "repeat"):
            found += [part.lineno for one in part.args[1:2] if isinstance(one, made)]
            found += [
                part.lineno
                for one in part.args[:1]
                if isinstance(one, made) and "repeat" in ast.unparse(part.func)
            ]
    return sorted(found)


def names_in(value: ast.AST) -> set[str]:
    """The variables in an expression."""
    return {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}


def truth_of_numbers(node: _Function) -> list[int]:
    """The lines that ask whether a number is true, of int() or of what was made with it: 0 is not."""
    made: set[str] = set()
    bound = [part for part in ast.walk(node) if isinstance(part, ast.Assign | ast.For | ast.comprehension)]

    def counts(value: ast.AST) -> bool:
        calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
        turned = any(getattr(one, "id", "") == "int" for call in calls for one in (call.func, *call.args[:1]))
        return turned or bool(names_in(value) & made)

    for _ in bound:  # what is made of it may stand anywhere
        for part in bound:
            if counts(part.value if isinstance(part, ast.Assign) else part.iter):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                made |= {name for target in targets for name in names_in(target)}
    asked: list[ast.expr] = []
    for one in ast.walk(node):
        if isinstance(one, ast.If | ast.IfExp | ast.While | ast.Assert):
            asked.append(one.test)
        elif isinstance(one, ast.comprehension):
            asked += one.ifs
        elif isinstance(one, ast.BoolOp):
            asked += one.values
        elif isinstance(one, ast.Call) and getattr(one.func, "id", "") in ("all", "any", "filter"):
            asked += one.args
    plain = [test for test in asked if not any(isinstance(one, ast.Compare) for one in ast.walk(test))]
    return sorted(test.lineno for test in plain if counts(test))


def computed_for(node: _Function, function: str, position: int, plain: tuple[str, ...]) -> list[int]:
    """The line that last computed the variable which a call is given in a place, or whose attribute it is given.

    None where that is no variable, or is what one of the `plain` functions has returned, or another name for it.
    """
    found = []
    for call in calls_of(node, function):
        value = call.args[position] if position < len(call.args) else None
        name = root_of(value) if isinstance(value, ast.Name | ast.Attribute) else ""
        made = [
            part
            for part in ast.walk(node)
            if isinstance(part, ast.Assign | ast.AugAssign) and part.lineno < call.lineno
            for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
            if name and name in names_in(target)
        ]
        last = max(made, key=lambda part: part.lineno, default=None)
        if last and (isinstance(last, ast.AugAssign) or not _is_plain(last.value, plain)):
            found.append(last.lineno)
    return found


def _is_plain(value: ast.expr, plain: tuple[str, ...]) -> bool:
    """Whether nothing is computed there."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in plain
    return isinstance(value, ast.Name | ast.Attribute | ast.Tuple)
