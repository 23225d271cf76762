"""Where in the student's averaging some gradients are treated otherwise than the rest."""

import ast
from collections.abc import Iterator

from lab.checks.common.look import Look
from lab.checks.common.look_around import with_helpers
from lab.checks.common.syntax import assignments, names_in

_ADDING_UP = ("cumsum", "accumulate", "sum(")


def not_moved_on(look: Look) -> str:
    """Where the place at which a part begins is set anew, and not moved on from the one before; "" if nowhere.

    That is `offset = size` in a loop in place of `offset += size`, also by way of other variables; or the list of
    sizes that a loop or a comprehension takes for places.
    """
    for node in with_helpers(look):
        for loop in ast.walk(node):
            if not isinstance(loop, ast.For | ast.While):
                continue
            begins = {name for part in ast.walk(loop) for name in _begins(part)}
            before = {name for name in begins if min(assignments(node, name), default=loop.lineno) < loop.lineno}
            made = [part for part in ast.walk(loop) if isinstance(part, ast.Assign | ast.AugAssign)]
            for name in sorted(before):
                lines = [part.lineno for part in made if name in _given_by(part)]
                if lines and not _moves(name, made):
                    return look.line(min(lines))
        if lines := list(_sizes_for_places(node)):
            return look.line(min(lines))
    return ""


def _begins(part: ast.AST) -> set[str]:
    """The variable at which a part of a tensor begins: flat[a:b], flat.narrow(0, a, n)."""
    first: ast.AST | None = part.lower if isinstance(part, ast.Slice) else None
    narrow = isinstance(part, ast.Call) and ast.unparse(part.func).endswith("narrow") and len(part.args) > 1
    if narrow:
        first = part.args[-2]  # type: ignore[attr-defined]
    return {first.id} if isinstance(first, ast.Name) else set()


def _given_by(part: ast.Assign | ast.AugAssign) -> set[str]:
    targets = part.targets if isinstance(part, ast.Assign) else [part.target]
    return {name for target in targets for name in names_in(target)}


def _moves(name: str, made: list[ast.Assign | ast.AugAssign]) -> bool:
    """Whether a variable gets its next value from one of the round before: its own, or that of another."""
    reads: dict[str, set[str]] = {}
    for part in made:
        for target in _given_by(part):
            own = {target} if isinstance(part, ast.AugAssign) else set()
            reads[target] = reads.get(target, set()) | names_in(part.value) | own

    def origins(start: str) -> set[str]:
        found, left = set[str](), [start]
        while left:
            new = reads.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    return any(one in origins(one) for one in {name, *origins(name)})


def _sizes_for_places(node: ast.AST) -> Iterator[int]:
    """The lines that make what is gone through for places, and that add nothing up: zip(grads, sizes)."""
    begins = {name for part in ast.walk(node) for name in _begins(part)}
    for loop in ast.walk(node):
        if not isinstance(loop, ast.For | ast.comprehension) or not isinstance(loop.target, ast.Tuple):
            continue
        through = loop.iter.args if isinstance(loop.iter, ast.Call) else []
        for target, one in zip(loop.target.elts, through, strict=False):
            if isinstance(target, ast.Name) and target.id in begins and isinstance(one, ast.Name):
                yield from (
                    part.lineno
                    for part in ast.walk(node)
                    if isinstance(part, ast.Assign)
                    and one.id in _given_by(part)
                    and not any(word in ast.unparse(part.value) for word in _ADDING_UP)
                )


def waited_alone(look: Look) -> str:
    """Where a collective is waited for and its sum not divided, as that of others is; "" where none is."""
    blocks = [
        statements
        for node in with_helpers(look)
        for part in ast.walk(node)
        for statements in (getattr(part, "body", None), getattr(part, "orelse", None))
        if isinstance(statements, list)
    ]
    waits = [
        (min(lines), any(_divides(part) for one in block for part in ast.walk(one)))
        for block in blocks
        if (lines := [one.lineno for one in block if isinstance(one, ast.Expr) and _is_wait(one.value)])
    ]
    alone = [line for line, divided in waits if not divided]
    return look.line(min(alone)) if alone and len(alone) < len(waits) else ""


def _is_wait(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "wait"


def _divides(part: ast.AST) -> bool:
    if isinstance(part, ast.BinOp | ast.AugAssign):
        return isinstance(part.op, ast.Div | ast.Mult)
    named = isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
    return named and part.func.attr.startswith(("div", "mul", "true_div"))  # type: ignore[attr-defined]
