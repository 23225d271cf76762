"""Check of 9.4: parameters that are whole only while they are used."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.fsdp.judge import draw, judge, sent
from lab.checks.from_scratch.fsdp.observe import train
from lab.grading.check import Group, Order, check

IN_BF16 = "What is gathered and computed with is in self.dtype: half the bytes travel."
NO_MEMORY = "The backward pass uses parameters that were freed after the forward pass: gather them again before."


@check("9.4", "each rank keeps a shard, and a block is whole only while it is computed")
def shards_what_it_does_not_use(group: Group) -> None:
    drawn = draw(fresh_generator(), world_size=3)  # none of 2 would have padding
    look = Look(group.code, "from_scratch/fsdp.py", "MyFSDP.__init__")
    again = retold(
        r"storage of size 0|out of bounds for storage",
        "not-gathered-again",
        NO_MEMORY,
        saw="the backward pass met parameters that have no memory.",
        look=look(r"hook"),
    )
    low = retold(r"must have the same dtype", "not-in-bf16", IN_BF16, look=look.into("Unit.fill")(r"gather"))
    none = retold(
        r"NoneType.* has no attribute '(shape|numel|detach)'",
        "none-taken",
        "A layer without a bias has one that is None in _parameters: leave those out.",
        look=look(r"_parameters"),
    )
    with again, low, none:
        reports = group.observe(Order(train, 3, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
