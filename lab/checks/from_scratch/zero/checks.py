"""Check of 9.3: an optimizer whose states are shared out over the ranks."""

import re

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.zero.draw import RANKS, draw, sent
from lab.checks.from_scratch.zero.judge import judge
from lab.checks.from_scratch.zero.judge_kept import LOST
from lab.checks.from_scratch.zero.observe import train
from lab.checks.from_scratch.zero.places import buffer_at, lost_at
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

NO_GRAD = "Autograd allows no change of a parameter in its place, but under torch.no_grad(), as hand_out() is."
EMPTY = "With fewer parameters than ranks there are shares without any: for those there is nothing to send."
# view(-1) of filters in channels_last raises. Nobody asks for more: such an answer is tried without them. Told is
# what goes wrong there in silence.
NEEDS_ORDER = r"view size is not compatible|use \.reshape"
COMPARED = "`in` and == compare what the tensors hold, number by number: use `is`, or a set of id(parameter)."

# Of a collective that ranks have called with as many numbers.
OTHER_TYPES = r"called \w+ at \S+ with (\[[\d, ]*\]) of (\w+), .*with \1 of (\w+)"
TYPES = "What comes in has the parameters' type: torch.empty(n) is float32, on the CPU, whatever they are."


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
    gone = retold(r"KeyError: 'sum'", "early-states-lost", LOST, look=lost_at(look))
    with in_place, empty, compared, gone:
        try:
            reports = group.observe(Order(train, RANKS, sent(drawn), timeout=LIMIT))
        except Diagnosis as told:
            types = re.search(OTHER_TYPES, searchable(told.saw))
            if types and types[2] != types[3]:
                raise Diagnosis(
                    "buffer-of-other-type",
                    saw=re.sub(r"^`.*at times: ", "", searchable(told.saw)),
                    means=TYPES,
                    look=buffer_at(hand_out),
                ) from None
            if not re.search(NEEDS_ORDER, searchable(told.saw)):
                raise
            reports = group.observe(Order(train, RANKS, sent(drawn, contiguous=True), timeout=LIMIT))
    judge(look, reports, drawn)
