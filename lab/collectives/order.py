"""Orders that the ranks do not share: of sets, and of what is sorted by the numbers that each rank has."""

import ast
from collections.abc import Iterator

from lab.collectives.copies import last_name

# What takes one tensor after the other, and gives the order of what it is given.
_MATCHED = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter")
_SAME_ORDER = ("list", "tuple", "enumerate", "zip", "iter", "reversed", "filter", "map")
# What a tensor or parameter has alike on every rank.
_ALIKE = (
    "split",
    "count",
    "index",
    "get",
    "tuple",
    "int",
    "numel",
    "nelement",
    "shape",
    "size",
    "ndim",
    "dim",
    "len",
    "dtype",
    "str",
    "prod",
    "element_size",
    "nbytes",
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unordered_loops(tree: ast.Module) -> Iterator[int]:
    """The lines of sets whose elements a function takes one after the other."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    calls = {
        one: {last_name(part.func) for part in ast.walk(one) if isinstance(part, ast.Call)} for one in functions
    }
    # First in those that call a collective themselves; another one may hand the order to them.
    for node in sorted(functions, key=lambda one: calls[one].isdisjoint(_MATCHED)):
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
        if last_name(value.func) in ("set", "frozenset"):
            return value.lineno
        if last_name(value.func) in _SAME_ORDER:
            return next((line for one in value.args if (line := _set_in(one, sets))), 0)
    return 0


def sorted_by_own(tree: ast.Module) -> Iterator[int]:
    """The lines that sort by what is another thing on each rank: by tensors' values, or by where they are.

    In functions that call a collective.
    """
    for node in ast.walk(tree):
        calls = (
            [part for part in ast.walk(node) if isinstance(part, ast.Call)] if isinstance(node, _Function) else []
        )
        if {last_name(call.func) for call in calls}.isdisjoint(_MATCHED):
            continue
        for call in calls:
            keys = [one.value for one in call.keywords if one.arg == "key"]
            if last_name(call.func) in ("sort", "sorted") and any(map(_of_its_own, keys)):
                yield call.lineno


def _of_its_own(key: ast.expr) -> bool:
    """Whether a key asks for something else than shapes and names."""
    if not isinstance(key, ast.Lambda):
        return last_name(key) in ("id", "hash", "norm", "sum", "max", "min", "mean", "any")
    asked = {last_name(part.func) for part in ast.walk(key.body) if isinstance(part, ast.Call)}
    return not asked <= {*_ALIKE}
