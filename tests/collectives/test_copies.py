"""Copies that a collective writes to, and that nobody reads."""

import ast
from textwrap import indent

import pytest

from lab.collectives.copies import copies_sent

SENT = {
    "a list of copies": ("w = [p.clone() for p in model.parameters()]\nfor v in w:\n    broadcast(v, src=0)", 2),
    "a dict of copies": (
        "w = {k: v.clone() for k, v in state.items()}\nfor v in w.values():\n    broadcast(v)",
        2,
    ),
    "a copy of the model": ("w = deepcopy(model)\nfor v in w.parameters():\n    broadcast(v.detach())", 2),
    "one copy after the other": (
        "w = []\nfor p in model.parameters():\n    w.append(p * 1)\nfor v in w:\n    all_reduce(v)",
        4,
    ),
    "written back": (
        "w = [p.clone() for p in model.parameters()]\nfor v in w:\n    broadcast(v)\nback(model, w)",
        0,
    ),
    "used in the loop": (
        "w = [p.clone() for p in model.parameters()]\nfor v in w:\n    broadcast(v)\n    use(v)",
        0,
    ),
    "no copies": ("w = [p.detach() for p in model.parameters()]\nfor v in w:\n    broadcast(v)", 0),
    "the model's own": ("for v in model.parameters():\n    broadcast(v.detach())", 0),
    "an argument": ("for v in tensors:\n    broadcast(v)", 0),
}


@pytest.mark.parametrize(("text", "line"), SENT.values(), ids=SENT)
def test_copies_that_nothing_reads(text: str, line: int):
    tree = ast.parse("def f(model, state, tensors):\n" + indent(text, "    "))
    assert next(copies_sent(tree), 0) == line
    assert next(copies_sent(tree, ("g",)), 0) == 0
