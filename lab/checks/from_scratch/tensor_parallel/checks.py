"""Check of 9.5: a transformer's block of which each of two ranks has a half."""

import ast

from lab.checks.common.look import Look
from lab.checks.common.syntax import calls_of
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.tensor_parallel.judge import draw, judge, sent
from lab.checks.from_scratch.tensor_parallel.judge_sizes import WHOLE_BIAS
from lab.checks.from_scratch.tensor_parallel.net import COLUMN, RANKS, ROW
from lab.grading.check import Group, Order, check

# What ranks do, by name: it imports more than the grader's own process needs.
TRAIN = f"{__package__}.observe:train"

OTHER_DIMENSION = "A weight is [outputs, inputs]: column parallel cuts its outputs, row parallel its inputs."

PIECES_OF = (("own_part", "pieces", 2), (COLUMN, "pieces", 1))


def said_pieces(look: Look) -> str:
    """Where a layer, or parallelize() for one of the mlp, says a number of pieces that is written there; or "".

    A number in a layer goes first: it holds for all.
    """
    for function in (f"{COLUMN}.__init__", f"{ROW}.__init__", look.function):
        there = look.into(function)
        _, _, node = there.source()
        for name, keyword, position in PIECES_OF:
            for call in calls_of(node, name) if node else ():
                given = [one.value for one in call.keywords if one.arg == keyword] or call.args[position:]
                of_three = any("query_key_value" in ast.unparse(one) for one in call.args[:1])
                if given and isinstance(given[0], ast.Constant) and not of_three:
                    return there.line(given[0].lineno)
    return ""


@check("9.5", "a block on two ranks: two all-reduces forward, two backward, and the numbers of one process")
def cuts_a_block(group: Group) -> None:
    drawn = draw(fresh_generator())
    look = Look(group.code, "from_scratch/tensor_parallel.py", "parallelize")
    shapes = retold(
        r"shapes cannot be multiplied",
        "cut-along-other-dimension",
        OTHER_DIMENSION,
        look=look.into("RowParallelLinear.__init__")(r"weight"),
    )
    bias = retold(
        r"expanded size of the tensor|must match the existing size|must match the size of tensor|"
        r"is not compatible with|expand",
        "bias-not-cut",
        WHOLE_BIAS,
        look=look.into("ColumnParallelLinear.__init__")(r"bias"),
    )
    pieces = retold(
        r"numbers in \d+ pieces cannot be cut",
        "other-number-of-pieces",
        "Only query_key_value is made of three; each other layer is one piece, and `pieces` says which.",
        look=said_pieces(look),
    )
    with shapes, bias, pieces:
        reports = group.observe(Order(TRAIN, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
