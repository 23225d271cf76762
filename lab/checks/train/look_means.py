"""Where in the student's code a mean is worked out, in classes of the file too."""

import ast
from collections.abc import Iterator, Sequence

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_classes, in_helpers, with_helpers
from lab.checks.common.syntax import names_in

_GIVEN = ("train_step", "train_one_epoch", "evaluate", "train")


def worked_out(look: Look, *patterns: str) -> str:
    """The first line like this of the function, or else of a class that it uses, or else where it reduces or ends.

    An earlier pattern before a later one.
    """
    for wanted in (patterns, (r"reduce|gather",)):
        places = (find for find in (look(*wanted), *(in_classes(look, one) for one in wanted)) if line_of(find))
        if wanted and (place := next(places, "")):
            return place
    return look(r"\breturn\b")


def moving_at(look: Look) -> str:
    """Where a value becomes a part of itself and a part of something else: a moving average; "" if nowhere."""
    lines = [part.lineno for part in _statements(look) if _weighs_itself(part)]
    return look.line(min(lines)) if lines else in_helpers(look, r"(?<!\d)0?\.\d+\s*\*|\blerp")


def _statements(look: Look) -> Iterator[ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr]:
    """Those of the function, of its helpers, and of the classes that these use."""
    _, tree, _ = look.source()
    functions = [node for node in with_helpers(look) if node.name == look.function or node.name not in _GIVEN]
    used = {name for node in functions for name in names_in(node)}
    classes = [one for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef) and one.name in used]
    for node in (*functions, *classes):
        for part in ast.walk(node):
            if isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
                yield part


def _weighs_itself(part: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) -> bool:
    """mean = 0.9 * mean + 0.1 * loss, mean += 0.1 * (loss - mean), mean *= 0.9, mean.lerp_(loss, 0.1)."""
    if part.value is None:
        return False
    calls = [one for one in ast.walk(part.value) if isinstance(one, ast.Call)]
    if {ast.unparse(one.func).rpartition(".")[2] for one in calls} & {"lerp", "lerp_", "mul_"}:
        return True
    if isinstance(part, ast.Expr):
        return False
    targets: Sequence[ast.expr] = part.targets if isinstance(part, ast.Assign) else [part.target]
    if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Mult):
        return True
    parts = [one for one in ast.walk(part.value) if isinstance(one, ast.BinOp)]
    weighed = [one for one in parts if isinstance(one.op, ast.Mult | ast.Div)]
    inside = {ast.unparse(one) for product in weighed for one in ast.walk(product) if isinstance(one, ast.expr)}
    adds = isinstance(part, ast.AugAssign) or any(isinstance(one.op, ast.Add) for one in parts)
    return adds and any(ast.unparse(target) in inside for target in targets)


def after_loop(look: Look) -> str:
    """The first line below a loop that reads what the last round has left in a variable; "" where none does."""
    _, _, node = look.source()
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)] if node else []
    for loop in (part for part in (ast.walk(node) if node else ()) if isinstance(part, ast.For)):
        first, last = loop.lineno, loop.end_lineno or loop.lineno
        stored = [name for name in names if isinstance(name.ctx, ast.Store)]
        left = {name.id for name in stored if first <= name.lineno <= last}
        left -= {name.id for name in stored if not first <= name.lineno <= last}
        reads = [name.lineno for name in names if name.id in left and name.lineno > last]
        if reads:
            return look.line(min(reads))
    return ""
