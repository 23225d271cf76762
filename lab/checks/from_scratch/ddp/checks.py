"""Check of 9.2: gradients that are averaged in buckets while the backward pass runs."""

import re

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.ddp.draw import draw, sent
from lab.checks.from_scratch.ddp.judge import judge
from lab.checks.from_scratch.ddp.observe import train
from lab.checks.from_scratch.ddp.places import left_to_begin
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

ON_ONE_RANK = "collective-on-one-rank"
NOT_BEGUN = "finish() waits for a bucket that nobody has begun. Begin them in their order, and at last those left."

FROZEN = "A frozen parameter gets no gradient, so its bucket is never full: it belongs in none."
OUT_OF_ORDER = "Ranks that use other layers fill other buckets first: begin them in the order of self.buckets."


@check("9.2", "two ranks begin alike, and average in buckets while the backward pass runs")
def averages_while_computing(group: Group) -> None:
    drawn = draw(fresh_generator(), world_size=2)
    look = Look(group.code, "from_scratch/ddp.py", "MyDDP.__init__")
    frozen = retold(
        r"register a hook on a tensor that doesn't require",
        "frozen-in-buckets",
        FROZEN,
        look=look.into("make_buckets")(r"parameters\(", r"append"),
    )
    with frozen, retold(r"'NoneType' object has no attribute 'wait'", "bucket-not-begun", NOT_BEGUN):
        try:
            reports = group.observe(Order(train, 2, sent(drawn), timeout=LIMIT))
        except Diagnosis as diagnosis:
            if place := diagnosis.name == ON_ONE_RANK and left_to_begin(look):
                raise not_all_begun(diagnosis, place) from None
            if diagnosis.name != "different-sizes" or not re.search(
                r"called all_?reduce", searchable(diagnosis.saw)
            ):
                raise
            # All ranks cut the same buckets, so they have begun different ones.
            raise Diagnosis(
                "buckets-out-of-order",
                saw=diagnosis.saw,
                means=OUT_OF_ORDER,
                look=look.into("MyDDP._ready").under(r"_begin\(")
                or look.into("MyDDP._ready")(r"_begin", r"ready"),
            ) from None
    judge(look, reports, drawn)


def not_all_begun(told: Diagnosis, place: str) -> Diagnosis:
    """The same, where finish() begins what is left under a condition: a rank has left it and not begun all."""
    means = "Each rank begins all buckets: as long as one is left, finish() begins the next one."
    if not re.search(r"in all_?reduce\b", searchable(told.saw)):
        return told
    return Diagnosis(told.name, saw=told.saw, means=means, look=place, details=told.details)
