"""Results that nobody reads, of a collective or of arithmetic; sets, which have no order that ranks could share.

Told from the source, which is read and never run. It explains a failure that was seen, and decides on none.
"""

import ast
from collections.abc import Iterator

_COLLECTIVES = ("all_reduce", "reduce", "broadcast")  # they write to the tensor that they are given
# What gives the same numbers in memory under another name.
_SAME_MEMORY = (
    "detach",
    "view",
    "view_as",
    "flatten",
    "reshape",
    "squeeze",
    "unsqueeze",
    "contiguous",
    "requires_grad_",
)

# Methods that change nothing, and are called for what they return.
_PURE = ("div", "mul", "add", "sub", "mean", "sum", "float", "double", "detach", "clone", "item")

# What takes one tensor after the other, and gives the order of what it is given.
_MATCHED = (*_COLLECTIVES, "all_gather", "reduce_scatter", "gather", "scatter")
_SAME_ORDER = ("list", "tuple", "enumerate", "zip", "iter", "reversed", "filter", "map")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unread_results(tree: ast.Module, functions: tuple[str, ...] = ()) -> Iterator[int]:
    """The lines of such calls, in the functions of these names; by default in all."""
    for node in ast.walk(tree):
        if isinstance(node, _Function) and (not functions or node.name in functions):
            yield from _of_function(node)


def dropped_results(tree: ast.Module, functions: tuple[str, ...] = ()) -> Iterator[int]:
    """The lines that compute something, and keep nothing of it: `p.grad.div(n)`, `loss / n`."""
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or (functions and node.name not in functions):
            continue
        for statement in ast.walk(node):
            if isinstance(statement, ast.Expr):
                kept = False
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                kept = len(statement.targets) > 1 or _is_kept(statement.targets[0].id, statement, node)
            else:
                continue
            value = statement.value.elt if isinstance(statement.value, ast.ListComp) else statement.value
            computes = isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and _is_pure(value.func))
            if computes and not kept:
                yield statement.lineno


def _is_kept(name: str, made: ast.Assign, function: _Function) -> bool:
    """Whether anything reads the variable after the line that makes it: below it, or in a loop's next round."""
    uses = [part for part in ast.walk(function) if isinstance(part, ast.Name) and part.id == name]
    end = made.end_lineno or made.lineno
    if any(isinstance(part, ast.Global | ast.Nonlocal) and name in part.names for part in ast.walk(function)):
        return True
    if any(isinstance(use.ctx, ast.Load) and use.lineno > end for use in uses):
        return True
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While) and loop.lineno <= made.lineno <= (loop.end_lineno or 0):
            inside = [use for use in uses if loop.lineno <= use.lineno <= (loop.end_lineno or 0)]
            # A line reads before it writes.
            first = min(inside, key=lambda use: (use.lineno, isinstance(use.ctx, ast.Store)))
            if isinstance(first.ctx, ast.Load):
                return True
    return False


def _is_pure(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _PURE


def _of_function(function: _Function) -> Iterator[int]:
    for statement in ast.walk(function):
        if not isinstance(statement, ast.Expr) or not isinstance(call := statement.value, ast.Call):
            continue
        if _name(call.func) not in _COLLECTIVES:
            continue
        tensor = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "tensor"), None)
        if isinstance(tensor, ast.Call):
            calls = [_name(part.func) for part in ast.walk(tensor) if isinstance(part, ast.Call)]
            if calls[0] not in _SAME_MEMORY or "clone" in calls:
                yield statement.lineno
        elif isinstance(tensor, ast.Name) and not _is_read(tensor.id, statement, function):
            yield statement.lineno


def _is_read(name: str, after: ast.stmt, function: _Function) -> bool:
    """Whether the variable is used after that line; anything that may be run again counts as after it."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    if name in [argument.arg for argument in arguments]:
        return True  # it is the caller's
    made = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    if not all(isinstance(node.value, ast.Call) and _name(node.value.func) not in _SAME_MEMORY for node in made):
        return True  # it may be another name for what somebody else holds
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    around = [loop for loop in loops if loop.lineno <= after.lineno <= (loop.end_lineno or loop.lineno)]
    begin = min([loop.lineno for loop in around], default=after.lineno)
    end = after.end_lineno or after.lineno
    for node in ast.walk(function):
        read = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        line = getattr(node, "lineno", 0)
        if read and (line > end or (around and begin <= line < after.lineno)):
            return True
    return False


def unordered_loops(tree: ast.Module) -> Iterator[int]:
    """The lines of sets whose elements a function with a collective takes one after the other."""
    for node in ast.walk(tree):
        if not isinstance(node, _Function):
            continue
        calls = {_name(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
        if calls.isdisjoint(_MATCHED):
            continue
        sets: dict[str, int] = {}
        for part in ast.walk(node):
            if isinstance(part, ast.Assign) and (line := _set_in(part.value, sets)):
                sets |= {target.id: line for target in part.targets if isinstance(target, ast.Name)}
        for part in ast.walk(node):
            if isinstance(part, ast.For | ast.comprehension) and (line := _set_in(part.iter, sets)):
                yield line


def _set_in(value: ast.expr, sets: dict[str, int]) -> int:
    """The line of the set whose order this value has; 0 where it has one of its own."""
    if isinstance(value, ast.Name):
        return sets.get(value.id, 0)
    if isinstance(value, ast.Set | ast.SetComp):
        return value.lineno
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _set_in(value.generators[0].iter, sets)
    if isinstance(value, ast.BinOp):
        return _set_in(value.left, sets)
    if isinstance(value, ast.Call):
        if _name(value.func) in ("set", "frozenset"):
            return value.lineno
        if _name(value.func) in _SAME_ORDER:
            return next((line for one in value.args if (line := _set_in(one, sets))), 0)
    return 0


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
