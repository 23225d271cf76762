"""Copies that a collective writes to, and that nobody reads: told from the source, which is read and never run."""

import ast
from collections.abc import Iterator

# They write to the tensor, or the list, that they are given.
_WRITE = ("all_reduce", "reduce", "broadcast", "broadcast_object_list")
# Methods that give the same numbers in memory under another name.
SAME_MEMORY = (
    *("detach", "view", "view_as", "flatten", "reshape", "squeeze", "unsqueeze", "contiguous", "requires_grad_"),
)
_COPIES = ("clone", "deepcopy", "copy", "cat", "stack", "tensor", "parameters_to_vector", "float", "double", "cpu")
_OF_ITS_OWN = ("parameters", "buffers", "values", "items", "named_parameters", "state_dict", "children", "modules")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def copies_sent(tree: ast.Module, functions: tuple[str, ...] = ()) -> Iterator[int]:
    """The lines that make copies through which a loop goes with a collective, and which nothing reads below it.

    Args:
        functions: only in those of these names; by default in all.
    """
    for node in ast.walk(tree):
        if isinstance(node, _Function) and (not functions or node.name in functions):
            for loop in ast.walk(node):
                if isinstance(loop, ast.For) and _sends(loop) and (made := _made(loop, node)):
                    yield made


def last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def fresh(value: ast.expr) -> bool:
    """Whether a value is what a call has made, and no other name for what somebody else holds."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME_MEMORY:
        value = value.func.value
    return isinstance(value, ast.Call)


def _sends(loop: ast.For) -> bool:
    """Whether nothing is done in it but to send what it goes through."""
    targets = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    for statement in loop.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or last_name(call.func) not in _WRITE or not call.args:
            return False
        if _root(call.args[0]) not in targets:
            return False
    return True


def _made(loop: ast.For, function: _Function) -> int:
    """The line that makes the copies that a loop goes through; 0 where they are none, or somebody reads them."""
    name = _root(loop.iter)
    end = loop.end_lineno or loop.lineno
    uses = [part for part in ast.walk(function) if isinstance(part, ast.Name) and part.id == name]
    if not name or any(use.lineno > end for use in uses):
        return 0
    made = [
        part
        for part in ast.walk(function)
        if isinstance(part, ast.Assign) and any(getattr(one, "id", "") == name for one in part.targets)
    ]
    kept = [
        part
        for part in ast.walk(function)
        if isinstance(part, ast.Call) and last_name(part.func) == "append" and _root(part.func) == name
    ]
    values = [one.value for one in made if not (isinstance(one.value, ast.List) and not one.value.elts)]
    items = [*(part for value in values for part in _items(value)), *(one.args[0] for one in kept if one.args)]
    copied = items and all(_copied(one) for one in items)
    return min(one.lineno for one in (*values, *kept)) if copied else 0


def _items(value: ast.expr) -> list[ast.expr]:
    """What a list or a dict is made of; the value itself, where it is neither."""
    if isinstance(value, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return [value.elt]
    if isinstance(value, ast.DictComp):
        return [value.value]
    if isinstance(value, ast.List | ast.Tuple):
        return list(value.elts)
    if isinstance(value, ast.Call) and last_name(value.func) in ("list", "tuple", "dict") and value.args:
        return _items(value.args[0])
    return [value]


def _copied(value: ast.expr) -> bool:
    """Whether it is made anew, of whatever: a copy, or the result of arithmetic."""
    if isinstance(value, ast.BinOp):
        return True
    names = [last_name(part.func) for part in ast.walk(value) if isinstance(part, ast.Call)]
    return any(name in _COPIES for name in names)


def _root(value: ast.expr) -> str:
    """The variable that a value belongs to: of weights.values() it is `weights`, of p.data.view(-1) it is `p`."""
    while True:
        if isinstance(value, ast.Attribute):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in (*SAME_MEMORY, *_OF_ITS_OWN):
                return ""
            value = value.func.value
        else:
            return value.id if isinstance(value, ast.Name) else ""
