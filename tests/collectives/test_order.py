"""Lines that sort by what each rank has for itself are told from the source."""

import ast
from textwrap import indent

import pytest

from lab.collectives.order import sorted_by_own

OF_ITS_OWN = {
    "a norm": "for g in sorted(grads, key=lambda g: g.norm()):\n    dist.all_reduce(g)",
    "a sum, in place": "grads.sort(key=lambda g: -g.abs().sum().item())\nfor g in grads:\n    dist.all_reduce(g)",
    "where it is in memory": "for g in sorted(grads, key=id):\n    dist.all_reduce(g)",
}
ALIKE = {
    "a size": "for g in sorted(grads, key=lambda g: -g.numel()):\n    dist.all_reduce(g)",
    "a shape": "for g in sorted(grads, key=lambda g: tuple(g.shape)[::-1]):\n    dist.all_reduce(g)",
    "a name": "for n, g in sorted(named, key=lambda one: one[0].split('.')):\n    dist.all_reduce(g)",
    "no collective": "return sorted(losses, key=lambda loss: loss.item())",
}


def lines(code: str) -> list[int]:
    return list(sorted_by_own(ast.parse("def f(given):\n" + indent(code, "    "))))


@pytest.mark.parametrize("code", OF_ITS_OWN.values(), ids=OF_ITS_OWN)
def test_sorted_by_what_a_rank_has(code: str):
    assert lines(code) == [2]


@pytest.mark.parametrize("code", ALIKE.values(), ids=ALIKE)
def test_sorted_alike(code: str):
    assert lines(code) == []
