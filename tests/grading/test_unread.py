"""Collectives and arithmetic whose result nobody reads are told from the source."""

import ast
from textwrap import dedent, indent

import pytest

from lab.grading.unread import assigned_under, dropped_results, innermost, named_only, unread_results

UNREAD = {
    "a tensor made on the spot": "dist.all_reduce(torch.tensor(total))",
    "a copy": "dist.all_reduce(sums.clone())",
    "a copy of the same memory's": "dist.broadcast(tensor.detach().clone(), src=0)",
    "by name": "dist.all_reduce(tensor=torch.stack([a, b]), op=SUM)",
    "a variable that is not used again": "t = torch.tensor(total)\ndist.all_reduce(t)\nreturn total",
    "used before only": "t = sums.clone()\nprint(t)\ndist.all_reduce(t)",
}
READ = {
    "a variable": "t = torch.tensor(total)\ndist.all_reduce(t)\nreturn t",
    "the caller's": "dist.all_reduce(given)",
    "a part of one": "dist.all_reduce(sums[0])\ndist.all_reduce(p.grad)",
    "the same memory": "dist.all_reduce(p.grad.view(-1))\ndist.broadcast(tensor.detach(), src=0)",
    "in the next round of a loop": "for b in batches:\n    n += t\n    t = f(b)\n    dist.all_reduce(t)",
    "another name for it": "t = p.grad\ndist.all_reduce(t)",
    "one of those that a loop goes through": "a = f()\nfor t in (a, given):\n    dist.all_reduce(t)\nreturn a",
    "a result that is kept": "out = all_reduce(sums.clone(), 'sum', group)",
}

DROPPED = {
    "a division": "p.grad.div(n)",
    "an operator": "loss / n",
    "a copy": "loss.detach()",
    "in a variable that nobody reads": "grad = p.grad / n",
}
KEPT = {
    "in place": "p.grad.div_(n)\nloss /= n",
    "in a variable": "loss = loss.detach()\nreturn loss",
    "in a variable that the next round reads": "for b in batches:\n    print(t)\n    t = b / n",
    "a call for its effect": "model.to(device)\nmodel.eval()\nrun.backward(loss / n)",
}


def tree_of(code: str) -> ast.Module:
    return ast.parse("def f(given):\n" + indent(dedent(code), "    "))


def lines(code: str) -> list[int]:
    return list(unread_results(tree_of(code)))


@pytest.mark.parametrize("code", DROPPED.values(), ids=DROPPED)
def test_dropped(code: str):
    assert list(dropped_results(tree_of(code))) == [2]


@pytest.mark.parametrize("code", KEPT.values(), ids=KEPT)
def test_kept(code: str):
    assert list(dropped_results(tree_of(code))) == []


@pytest.mark.parametrize("code", UNREAD.values(), ids=UNREAD)
def test_unread(code: str):
    assert len(lines(code)) == 1


@pytest.mark.parametrize("code", READ.values(), ids=READ)
def test_read(code: str):
    assert lines(code) == []


def test_a_method_that_is_named_only_and_a_value_set_under_a_condition():
    tree = tree_of("model.train\nif a:\n    b = 1\nc = b\nmodel.eval()")
    function = innermost(tree, 4)
    assert function is not None
    assert named_only(function) == 2
    assert [assigned_under(function, name) for name in "bcz"] == [3, 0, 0]
    assert innermost(tree, 99) is None
