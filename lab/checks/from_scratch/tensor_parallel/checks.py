"""Check of 9.5: a transformer's block of which each of two ranks has a half."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.tensor_parallel.judge import draw, judge, sent
from lab.checks.from_scratch.tensor_parallel.judge_sizes import WHOLE_BIAS
from lab.checks.from_scratch.tensor_parallel.net import RANKS
from lab.grading.check import Group, Order, check

# What ranks do, by name: it imports more than the grader's own process needs.
TRAIN = f"{__package__}.observe:train"

OTHER_DIMENSION = "A weight is [outputs, inputs]: column parallel cuts its outputs, row parallel its inputs."


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
    with shapes, bias:
        reports = group.observe(Order(TRAIN, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
