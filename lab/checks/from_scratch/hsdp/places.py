"""Where in hsdp.py to look for what a judge has found."""

import ast

from lab.checks.common.look import Look
from lab.checks.common.syntax import calls_of, names_in

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def listed_at(look: Look, *, line: int = 0, last: bool = False) -> str:
    """Where the ranks are listed that new_group() is given, in this line, or in its first or last call.

    They are followed back through loops and from name to name. "" where there is no such call.
    """
    _, _, node = look.source()
    calls = calls_of(node, "new_group") if node else []
    call = next((one for one in calls if one.lineno == line), calls[-1 if last else 0] if calls else None)
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "ranks")] if call else []
    if not node or not given:
        return ""
    value, before = given[0], None
    while value is not before:
        before, value = value, _from(node, value, last=last)
    return look.line(value.lineno)


def _from(node: ast.AST, value: ast.expr, *, last: bool) -> ast.expr:
    """What a value has come from as it is, or in another form; the value itself where it was made."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):  # rows + columns
        return value.right if last else value.left
    if isinstance(value, ast.Call) and value.args and getattr(value.func, "id", "") in ("list", "enumerate"):
        return value.args[0]
    root = value
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):  # mesh.T.tolist()
        root = root.func if isinstance(root, ast.Call) else root.value
    return (_bound_to(node, root) if isinstance(root, ast.Name) else None) or value


def _bound_to(node: ast.AST, name: ast.Name) -> ast.expr | None:
    """What a name holds where it is read: what a loop around it goes through, or what it was given last."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and part.lineno < name.lineno:
            for target, value in _pairs(part):
                if isinstance(target, ast.Name) and target.id == name.id:
                    found.append(value)
        elif isinstance(part, ast.For | _Comprehension) and name in ast.walk(part):
            loops = [part] if isinstance(part, ast.For) else part.generators
            own = [one.iter for one in loops if name.id in names_in(one.target) and name not in ast.walk(one.iter)]
            if own and not isinstance(part, ast.For):
                return own[-1]
            found += own
    return max(found, key=lambda one: one.lineno, default=None)


def position_at(look: Look) -> str:
    """Where the position is made by which the part is chosen, if that has a line of its own; "" if not."""
    _, _, node = look.source()
    made = [part for part in ast.walk(node) if isinstance(part, ast.Assign)] if node else []
    known, found = set[str](), 0
    for part in sorted(made, key=lambda part: part.lineno):
        for target, value in _pairs(part):
            of_rank = bool(calls_of(value, "get_rank") or names_in(value) & known)
            if of_rank and not any(isinstance(one, ast.Subscript | ast.Mult) for one in ast.walk(value)):
                known |= names_in(target)
                found = part.lineno
    return look.line(found) if found else ""


def _pairs(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with their values: of a, b = x, y those of each."""
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]
