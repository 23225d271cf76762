"""Check of 9.1: an all-reduce around a ring, for several numbers of ranks."""

import re

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT
from lab.checks.from_scratch.ring.judge import draw, judge, judge_alone
from lab.checks.from_scratch.ring.observe import reduce_all
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis


@check("9.1", "the sum of tensors of any length, in messages around a ring of 3 and of 4 ranks")
def sums_around_a_ring(group: Group) -> None:
    look = Look(group.code, "from_scratch/ring.py", "ring_all_reduce")
    drawn = {ranks: draw(ranks) for ranks in (3, 4, 1)}
    pending = {
        ranks: group.start(Order(reduce_all, ranks, given, timeout=LIMIT)) for ranks, given in drawn.items()
    }
    with (
        retold(
            r"there is no rank",
            "no-such-rank",
            "The ring closes: after rank N-1 comes rank 0, (rank + 1) % N.",
            saw="a rank sends to rank N or receives from rank -1, which there is not.",
        ),
        retold(
            r"not connected",
            "talks-to-itself",
            "Its neighbours are (rank + 1) % N and (rank - 1) % N; what a rank has need not travel.",
            saw="a rank sends to itself or receives from itself.",
        ),
    ):
        for ranks in (3, 4):
            try:
                reports = group.values(pending[ranks]())
            except Diagnosis as diagnosis:
                types = re.findall(r"numbers of (\w+)", searchable(diagnosis.saw))
                if diagnosis.name != "message-sizes-differ" or len(set(types)) < 2:
                    raise
                raise Diagnosis(
                    "buffer-of-other-type",
                    saw=diagnosis.saw,
                    means="A buffer has the type of what comes in: torch.empty(n) is float32, whatever that is.",
                    look=look.into("reduce_scatter")(r"empty|zeros|new_|tensor\(", r"exchange\("),
                ) from None
            judge(look, reports, drawn[ranks])
    with retold(r"not connected", "talks-to-itself", "With N = 1 there are no steps: N-1 is none."):
        judge_alone(look, group.values(pending[1]()), drawn[1])
