"""Checks of section 6: the step, the epoch, the evaluation, the whole run."""

import re
from contextlib import ExitStack

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, fresh_generator, parts
from lab.checks.train.draw import draw_epochs, draw_evaluation, draw_run, draw_steps
from lab.checks.train.judge_epochs import judge_epochs
from lab.checks.train.judge_evaluation import EXACT, judge_evaluation, judge_repetition
from lab.checks.train.judge_passes import BYPASSED, judge_few
from lab.checks.train.judge_run import EVERY_EPOCH, judge_run
from lab.checks.train.judge_steps import judge_steps
from lab.grading.check import Group, Order, check
from lab.grading.parts import part

# What ranks do, by name: it imports more than the grader's own process needs.
RUN_EPOCHS = f"{__package__}.observe_epochs:run_epochs"
RUN_TRAINING = f"{__package__}.observe_run:run_training"
EVALUATE_MODELS = f"{__package__}.observe_evaluation:evaluate_models"
TAKE_STEPS = f"{__package__}.observe_steps:take_steps"

NO_RESULT = "UnboundLocalError|'NoneType' object has no attribute '(loss|accuracy)'"
NO_SAMPLES = "On some rank no sample was counted: it has but few batches, and the last may be filler alone."
COMPARED = "Labels compare with one prediction an image: the argmax over its classes, dim=1."
PREDICTION = (r"(argmax|max)\((dim=)?0", r"argmax|max\(|topk")


@check("6.1", "a step computes what one process would on the whole batch")
def takes_the_right_step(group: Group) -> None:
    weights, batches = draw_steps(fresh_generator(), world_size=2)
    given = {"weights": weights, "batches": [parts(batch, 2) for batch in batches]}
    look = Look(group.code, "train.py", "train_step")
    judge_steps(look, group.observe(Order(TAKE_STEPS, 2, given, timeout=LIMIT)), weights, batches)


@check("6.1", "an epoch has its own order, uses every batch, and returns the mean over all ranks")
def runs_a_whole_epoch(group: Group) -> None:
    given = draw_epochs(fresh_generator())
    look = Look(group.code, "train.py", "train_one_epoch")
    judge_epochs(look, group.observe(Order(RUN_EPOCHS, 2, given, timeout=LIMIT)), given)


@check("6.2", "loss and accuracy are exact over all ranks, under DDP and under FSDP")
def evaluates_every_sample_once(group: Group) -> None:
    # 10 samples on 3 ranks: there the last batch of two ranks is nothing but filler.
    look = Look(group.code, "train.py", "evaluate")
    started = []
    for world_size, samples, batch_size in ((2, 19, 4), (3, 10, 3)):
        generator = fresh_generator()
        weights, own, drawn = draw_evaluation(generator, world_size, samples, batch_size)
        given = {
            "weights": dict(weights),
            "parts": own,
            "batch_size": batch_size,
            "exact": drawn.possible(0)["exact"][0][0],
        }
        started.append((group.start(Order(EVALUATE_MODELS, world_size, given, timeout=LIMIT)), drawn))
    ended = []
    for report, drawn in started:
        with (
            retold("FSDP.* has no attribute 'module'", "wrapper-bypassed", BYPASSED),
            retold("division by zero", "raised", NO_SAMPLES, look=look(r"islice|\[:-1\]|break|continue", r"/")),
            retold("must match the size of tensor", "compared-with-other-shape", COMPARED, look=look(*PREDICTION)),
        ):
            reports = group.values(report())
        for wrapper in ("DDP", "FSDP"):
            judge_evaluation(look, reports, wrapper, drawn)
        with part("again, and on the device", after=[EXACT]):
            judge_repetition(look, reports, drawn)
        ended.append((reports, drawn))
    for reports, drawn in ended:
        with part(EXACT):
            judge_few(look, reports, drawn.few)


@check("6.3", "every epoch is trained, evaluated and recorded, in this order")
def trains_evaluates_records(group: Group) -> None:
    given = draw_run(fresh_generator())
    look = Look(group.code, "train.py", "train")
    condition = look.under(r"(?<!\.)\bevaluate\(")
    everyone = re.search(r"rank|main", searchable(condition)) is None
    with ExitStack() as stack:
        if condition and everyone:  # no result is there yet: the same mistake as an old one that is recorded
            stack.enter_context(retold(NO_RESULT, "not-evaluated-every-epoch", EVERY_EPOCH, look=condition))
        reports = group.observe(Order(RUN_TRAINING, 2, given, timeout=LIMIT))
    judge_run(look, reports, given)
