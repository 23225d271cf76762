"""Mutants: what one slip makes of a right answer. Nobody chooses them, so nobody forgets the ones that pass.

Each slip changes one place: a statement left out, doubled, in another order, on some ranks only, or in a try that
hides its errors; an argument, a name, a number, a comparison that is another one. See R. A. DeMillo, R. J. Lipton,
F. G. Sayward, "Hints on Test Data Selection", IEEE Computer 11 (1978).
"""

import ast
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from textwrap import dedent, indent
from typing import Any

# Names that people take for each other.
_ALIKE = (
    {"rank", "local_rank", "world_size"},
    {"get_rank", "get_world_size"},
    {"train_set", "valid_set"},
    {"train_loader", "valid_loader", "test_loader"},
    {"train", "valid", "test"},
    {"images", "labels", "logits"},
    {"loss", "accuracy"},
    {"eval", "train"},
    {"num_workers", "seed"},
    {"device_count", "current_device"},
    {"SUM", "AVG", "MAX"},
    {"sum", "mean"},
    {"float64", "float32", "bfloat16"},
    {"parameters", "buffers"},
    {"param_dtype", "reduce_dtype", "output_dtype"},
    {"blocks", "modules"},
    {"global_batch_size", "batch_size"},
    {"TORCHRUN", "SRUN"},
    {"any", "all"},
    {"policy", "root_policy"},
)
_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_RANKS = {"rank 0": "dist.get_rank() == 0", "ranks but 0": "dist.get_rank() != 0"}

Slip = tuple[str, AbstractContextManager[None]]


def mutants(code: str) -> Iterator[tuple[str, str]]:
    """What is changed, in words, and the code of each mutant of a region's code. No two codes are the same."""
    function = ast.parse("def region():\n" + indent(dedent(code), "    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    seen = {_text(function)}
    nodes = list(ast.walk(function))
    words = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in nodes:
        if node in words:  # of an error's text: everyone's own
            continue
        line = ast.unparse(node).partition("\n")[0]
        for what, slip in [*_of_blocks(node), *_of_expression(node)]:
            with slip:
                text = _text(function)
            if text not in seen:
                seen.add(text)
                yield f"{what}: {line}", text


def _text(function: ast.FunctionDef) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(part)) for part in function.body) + "\n"


@contextmanager
def _with(node: ast.AST, **fields: Any) -> Iterator[None]:
    """The node with other values in some of its fields."""
    before = dict(node.__dict__)
    node.__dict__.update(fields)
    yield
    node.__dict__.update(before)


@contextmanager
def _as(node: ast.AST, other: ast.AST) -> Iterator[None]:
    """Another node in this one's place."""
    before, kind = dict(node.__dict__), node.__class__
    node.__class__ = other.__class__
    node.__dict__ = dict(other.__dict__)
    yield
    node.__class__, node.__dict__ = kind, before


def _without(parts: list[Any], place: int) -> list[Any]:
    return parts[:place] + parts[place + 1 :]


def _of_blocks(node: ast.AST) -> Iterator[Slip]:
    """Slips in the statements of a block."""
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        for place, statement in enumerate(block if isinstance(block, list) else ()):
            first = ast.unparse(statement).partition("\n")[0]
            for what, instead in _of_statement(statement):
                yield f"{what} <{first}>", _with(node, **{field: block[:place] + instead + block[place + 1 :]})
            if place + 1 < len(block):
                others = [*block[:place], block[place + 1], statement, *block[place + 2 :]]
                yield f"after the next <{first}>", _with(node, **{field: others})


def _of_statement(one: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    """What can stand in a statement's place."""
    yield "left out", [ast.Pass()]
    if isinstance(one, ast.Return):
        return
    yield "twice", [one, one]
    yield "return before", [ast.Return(None), one]
    for ranks, test in _RANKS.items():
        yield f"on {ranks} only", [ast.If(ast.parse(test, mode="eval").body, [one], [])]
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
    yield "its errors hidden", [ast.Try([one], [handler], [], [])]
    if isinstance(one, ast.With | ast.For):
        yield "its body alone", list(one.body)
    if isinstance(one, ast.For):
        yield "once", [ast.For(one.target, one.iter, [*one.body, ast.Break()], [])]
        if len(one.body) > 1:
            yield "its last behind it", [ast.For(one.target, one.iter, one.body[:-1], []), one.body[-1]]
    if isinstance(one, ast.AugAssign):
        yield "assigned", [ast.Assign([one.target], one.value)]


def _of_expression(node: ast.AST) -> Iterator[Slip]:
    """Slips in a condition, a call, a value."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "always", _with(node, test=ast.Constant(True))
        yield "never", _with(node, test=ast.Constant(False))
        yield "the contrary", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            yield f"without {keyword.arg}", _with(node, keywords=_without(node.keywords, place))
        for place in range(len(node.args)):
            yield "an argument less", _with(node, args=_without(node.args, place))
            if place:
                swapped = [
                    *node.args[: place - 1],
                    node.args[place],
                    node.args[place - 1],
                    *node.args[place + 1 :],
                ]
                yield "arguments swapped", _with(node, args=swapped)
        if isinstance(node.func, ast.Attribute):
            yield "without the call", _as(node, node.func.value)
        if node.args:
            yield "the argument alone", _as(node, node.args[0])
    elif isinstance(node, ast.BinOp):
        if other := _OPERATORS.get(type(node.op)):
            yield "another operator", _with(node, op=other())
        yield "left only", _as(node, node.left)
        yield "right only", _as(node, node.right)
        yield "swapped", _with(node, left=node.right, right=node.left)
    elif isinstance(node, ast.UnaryOp):
        yield "no sign", _as(node, node.operand)
    elif isinstance(node, ast.BoolOp):
        yield "and for or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for place in range(len(node.values)):
            yield "a condition less", _with(node, values=_without(node.values, place))
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            another = [*node.ops[:place], _COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield "another comparison", _with(node, ops=another)
        if len(node.ops) > 1:
            yield "the first two", _with(node, ops=node.ops[:1], comparators=node.comparators[:1])
            rest = {"left": node.comparators[0], "ops": node.ops[1:], "comparators": node.comparators[1:]}
            yield "the others", _with(node, **rest)
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield repr(value), _with(node, value=value)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        field = "id" if isinstance(node, ast.Name) else "attr"
        name = getattr(node, field)
        for other in sorted({one for alike in _ALIKE if name in alike for one in alike} - {name}):
            yield other, _with(node, **{field: other})
    elif isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        for place in range(len(node.elts)):
            yield "an element less", _with(node, elts=_without(node.elts, place))
    elif isinstance(node, ast.Dict):
        for place in range(len(node.keys)):
            keys, values = _without(node.keys, place), _without(node.values, place)
            yield "a key less", _with(node, keys=keys, values=values)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield "the whole", _as(node, node.value)


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value]
    if isinstance(value, str):
        return [f"{value}_"]
    return [0] if value is None else []
