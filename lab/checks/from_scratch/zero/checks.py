"""Check of 9.3: an optimizer whose states are shared out over the ranks."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.zero.draw import RANKS, draw, sent
from lab.checks.from_scratch.zero.judge import judge
from lab.checks.from_scratch.zero.judge_kept import LOST
from lab.checks.from_scratch.zero.observe import train
from lab.checks.from_scratch.zero.places import lost_at
from lab.grading.check import Group, Order, check

NO_GRAD = "Autograd allows no change of a parameter in its place, but under torch.no_grad(), as hand_out() is."
EMPTY = "With fewer parameters than ranks there are shares without any: for those there is nothing to send."
IN_ORDER = (
    "channels_last filters lie in another order in memory: for them use flatten(), and copy_(part.view_as(one))."
)
COMPARED = "`in` and == compare what the tensors hold, number by number: use `is`, or a set of id(parameter)."


@check("9.3", "each of three ranks has the states of its share, and all have the weights of one process")
def shares_the_states(group: Group) -> None:
    drawn = draw(fresh_generator())
    look = Look(group.code, "from_scratch/zero.py", "ZeroOptimizer.__init__")
    hand_out = look.into("ZeroOptimizer.hand_out")
    in_place = retold(r"leaf Variable that requires grad", "needs-no-grad", NO_GRAD, look=hand_out(r"copy_|\+="))
    empty = retold(r"expected a non-empty list", "empty-share", EMPTY, look=hand_out(r"cat\("))
    compared = retold(
        r"Boolean value of Tensor|must match the size of tensor|not in list", "compared-by-numbers", COMPARED
    )
    in_order = retold(r"view size is not compatible|use \.reshape", "needs-contiguous", IN_ORDER)
    gone = retold(r"KeyError: 'sum'", "early-states-lost", LOST, look=lost_at(look))
    with in_place, empty, compared, in_order, gone:
        reports = group.observe(Order(train, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
