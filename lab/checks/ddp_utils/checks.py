"""Checks of the first part of section 4: gradients averaged over the ranks, by hand and by DDP."""

import random

from lab.checks.common.look import Look, line_of
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, draw_training
from lab.checks.ddp_utils.draw import Gradients
from lab.checks.ddp_utils.judge_average import judge_average
from lab.checks.ddp_utils.judge_ddp import judge_ddp
from lab.checks.ddp_utils.judge_pretended import DDP, NOT_ALL_RANKS, group_at
from lab.checks.ddp_utils.observe import average, train_with_ddp
from lab.grading.check import Group, Order, check


@check("4.0", "every rank ends up with the gradients of the whole batch")
def gradients_of_the_whole_batch(group: Group) -> None:
    look = Look(group.code, "ddp_utils.py", "average_gradients")
    started = []
    for world_size in (3, 2):  # three first: there nothing that is divided by 2 or 4 looks right, or divided twice
        drawn = Gradients(world_size)
        started.append((group.start(Order(average, world_size, drawn.inputs, timeout=LIMIT)), drawn))
    for report, drawn in started:
        with retold(
            "NoneType",
            "parameter-without-gradient",
            "A parameter that took no part in the forward pass has grad None: leave it out.",
            look=place if line_of(place := look(r"\bif\b(?!.*grad is).*requires_grad")) else "",
        ):
            reports = group.values(report())
        judge_average(look, reports, drawn)


@check("4.1", "trains as one process would on the whole batch")
def trains_with_ddp(group: Group) -> None:
    look = Look(group.code, "ddp_utils.py", "get_ddp_model")
    world_size = 3
    _, batches, given = draw_training(world_size)
    given |= {"bucket_cap_mb": random.randrange(5, 20) + 0.5, "gpus": [3, 2, 0]}  # no GPU is its rank
    with (
        retold(
            "device_ids",
            "device-ids-on-cpu",
            "device_ids names this process's GPU. On the CPU there is none: device_ids must be None.",
            look=look.source_of(DDP, "device_ids", 1, like=r"\[")
            or look(r"device_ids\s*=\s*\[", r"device_ids", r"Parallel\("),
        ),
        retold(
            "_verify_params_across_processes|nvalid process group",
            "not-all-ranks",
            NOT_ALL_RANKS,
            saw=f"{{rank}} of {world_size} is not in the process group that was handed to DDP.",
            look=group_at(look),
        ),
    ):
        reports = group.observe(Order(train_with_ddp, world_size, given, timeout=LIMIT))
    judge_ddp(look, reports, given, batches)
