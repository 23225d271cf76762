"""Checks of 9.6: the order of what each rank of a pipeline does, and a pipeline of three ranks."""

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.from_scratch.pipeline.judge import draw, judge, sent
from lab.checks.from_scratch.pipeline.judge_schedules import CASES, judge_schedules
from lab.checks.from_scratch.pipeline.net import RANKS
from lab.checks.from_scratch.pipeline.observe import list_schedules, train
from lab.grading.check import Group, Order, check

NO_GRADIENT = "x came from another rank: without x.requires_grad_() autograd makes no gradient to send back."
NOT_RECEIVED = "Only a loss can begin by itself: the others begin with the gradient that the rank behind has sent."
POPPED = (
    "Each forward pass puts (x, output, work) into self.held[micro], and its backward pass takes it out again."
)


@check("9.6", "all forward and then all backward passes; or one of each in turn, with as small a bubble")
def orders_its_actions(group: Group) -> None:
    look = Look(group.code, "from_scratch/pipeline.py", "gpipe")
    judge_schedules(look, group.observe(Order(list_schedules, 1, {"cases": CASES}, timeout=LIMIT)))


@check("9.6", "three stages train as one process does, and 1F1B keeps few activations", after_passed=True)
def trains_in_stages(group: Group) -> None:
    drawn = draw(fresh_generator())
    look = Look(group.code, "from_scratch/pipeline.py", "Stage.forward")
    back = look.into("Stage.backward")
    none = retold(
        r"NoneType|does not require grad|tensor.*must be.*Tensor|Invalid function argument",
        "input-without-gradient",
        NO_GRADIENT,
        saw="{rank} has no gradient of its input to send.",
        look=look(r"recv"),
    )
    scalar = retold(r"only for scalar outputs", "gradient-not-received", NOT_RECEIVED, look=back(r"backward\("))
    held = retold(r"KeyError", "not-held", POPPED, look=look(r"held", r"def "))
    with none, scalar, held:
        reports = group.observe(Order(train, RANKS, sent(drawn), timeout=LIMIT))
    judge(look, reports, drawn)
