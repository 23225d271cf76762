"""Checks of section 1: one network, any batch size."""

import random
from typing import Any

import torch

from lab.checks.common.look import Look
from lab.checks.common.tiny import fresh_generator
from lab.checks.model.judge_network import LOGITS, judge_network
from lab.checks.model.judge_world import judge_world
from lab.checks.model.observe import IMAGE, run_network
from lab.grading.check import Group, Order, check
from lab.grading.parts import part

FORWARD_IN_WORLD = "lab.checks.model.observe_world:forward_in_world"  # what it imports only ranks need


@check("1.1", "takes batches of any size and gives one row of logits an image")
def any_batch_size(group: Group) -> None:
    look = Look(group.code, "model.py", "CNN.forward")
    sizes = [*random.sample([3, 5, 6, 7, 9, 11], 2), 1, 12]
    num_classes, generator = random.randrange(3, 10), fresh_generator()
    given: dict[str, Any] = {
        "seed": random.randrange(2**31),
        "batches": [torch.randn(size, *IMAGE, generator=generator) for size in sizes],
        "num_classes": num_classes,
        "large": 2 * random.randrange(2048, 4096) + 1,
    }
    reports = group.observe(Order(run_network, 1, given, set_up_process_group=False))
    judge_network(look, reports, sizes, given)
    world_size = random.randrange(3, 6)
    world = {
        # One of them cannot be shared evenly, whatever is drawn.
        "batches": [given["batches"][0], given["batches"][-1], given["batches"][-1][: world_size + 1]],
        "rank": random.randrange(1, world_size),
        "world_size": world_size,
    }
    with part(LOGITS):
        order = Order(FORWARD_IN_WORLD, 1, world, set_up_process_group=False)
        judge_world(look, world, group.observe(order))
