"""Check of 9.2: gradients that are averaged in buckets while the backward pass runs."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.ddp.draw import draw, sent
from lab.checks.from_scratch.ddp.judge import judge
from lab.checks.from_scratch.ddp.observe import train
from lab.grading.check import Group, Order, check

NOT_BEGUN = "finish() waits for a bucket that nobody has begun. Begin them in their order, and at last those left."


@check("9.2", "two ranks begin alike, and average in buckets while the backward pass runs")
def averages_while_computing(group: Group) -> None:
    drawn = draw(fresh_generator(), world_size=2)
    look = Look(group.code, "from_scratch/ddp.py", "MyDDP.__init__")
    with retold(r"'NoneType' object has no attribute 'wait'", "bucket-not-begun", NOT_BEGUN):
        reports = group.observe(Order(train, 2, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
