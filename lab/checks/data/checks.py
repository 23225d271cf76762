"""Checks of section 3: who loads first, which samples each rank draws, and validation without a gap."""

import random
import secrets

from lab.checks.common.look import Look
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT
from lab.checks.data.draw import DrawnLoaders, draw_gpu, draw_validation_sets, draw_worlds
from lab.checks.data.judge_arguments import HANDED_ON, judge_alone, judge_arguments, judge_idle, judge_refusals
from lab.checks.data.judge_loading import (
    IN_ORDER,
    judge_failed_load,
    judge_loading,
    judge_messages,
    judge_waiting,
)
from lab.checks.data.judge_nccl import judge_nccl
from lab.checks.data.judge_sampling import NEW_ORDER, OWN_SAMPLES, counted_from_0, judge_drawing
from lab.checks.data.judge_validation import (
    FILLER_SHAPE,
    ONE_SAMPLE,
    filler_place,
    judge_validation,
    past_the_end,
)
from lab.checks.data.judge_worlds import judge_worlds
from lab.checks.data.observe import read_validation, read_worlds, sample_epochs
from lab.checks.data.observe_loading import fail_to_load, watch_loading
from lab.grading.check import Group, Order, check
from lab.grading.parts import part

LOAD_WITH_NCCL = "lab.checks.data.observe_nccl:load_with_nccl"  # what it imports only ranks need


@check("3.1", "every process loads, the first one of each file system before the others")
def loads_once(group: Group) -> None:
    look = Look(group.code, "data.py", "load_once")
    # One file system whose first process is not rank 0, and two file systems.
    layouts = [[random.randrange(1, 4)], [0, random.choice([1, 2, 3])]]
    result = group.report(Order(watch_loading, 4, {"layouts": layouts}))
    judge_messages(look, result, layouts)
    judge_waiting(look, result, layouts)
    judge_loading(look, group.values(result), layouts)
    gpu = draw_gpu()
    with part(IN_ORDER):
        judge_nccl(look, gpu, group.observe(Order(LOAD_WITH_NCCL, 1, gpu, set_up_process_group=False)))
    message = f"no space left on device {secrets.token_hex(4)}"
    with part("an error comes out", after=[IN_ORDER]):
        judge_failed_load(look, group.observe(Order(fail_to_load, 1, message)), message)


@check("3.2", "every rank draws its own samples, in a new order each epoch")
def every_rank_draws_its_own_part(group: Group) -> None:
    look = Look(group.code, "data.py", "get_dataloaders")
    for world_size in (2, 3):
        asked = DrawnLoaders(world_size)
        given = {"configs": asked.configs, "refused": asked.refused}
        reports = group.observe(Order(sample_epochs, world_size, given, timeout=LIMIT))
        results = counted_from_0(asked, reports)
        with part(HANDED_ON):
            judge_idle(look, asked, results)
        judge_drawing(look, asked, results)
        judge_arguments(look, asked, results)
        with part("what does not fit is refused", after=[OWN_SAMPLES]):
            judge_refusals(look, asked, [report["refused"] for report in reports])
    asked = DrawnLoaders(1)
    with part(NEW_ORDER):
        judge_alone(look, asked, group.observe(Order(sample_epochs, 1, asked.alone, timeout=LIMIT))[0])


@check("3.3", "validation counts every sample once, with as many batches on every rank")
def validates_every_sample_once(group: Group) -> None:
    look = Look(group.code, "data.py", "get_dataloaders")
    started = []
    drawn = [(world_size, draw_validation_sets(world_size)) for world_size in (2, 3)]
    # Not every data set of the lab has images of 32 x 32, in three colours. A set of its own, and last: another
    # error comes first.
    drawn.append((2, draw_validation_sets(2, shape=(1, 8, 12))[1:2]))
    for world_size, configs in drawn:
        order = Order(read_validation, world_size, {"configs": configs}, timeout=LIMIT)
        started.append((group.start(order), configs))
    for report, configs in started:
        with (
            retold(
                "batch must contain tensors.*NoneType",
                "filler-of-another-shape",
                "Filler needs an image, too: any one. Its label IGNORED keeps it from being counted.",
                look=filler_place(look),
            ),
            retold(
                "IndexError",
                "past-the-end",
                "Where this rank's samples run out, __getitem__ must give filler: the other ranks have one more.",
                look=past_the_end(look),
            ),
            retold(
                "found <class|default_collate",
                "filler-without-image",
                "A batch is put together of tensors: filler needs an image too, of whatever is in it.",
                look=filler_place(look),
            ),
            retold(
                "stack expects each tensor to be equal size",
                "filler-of-another-shape",
                FILLER_SHAPE,
                look=filler_place(look),
            ),
            retold(
                r"got \[(.+)\] at entry \d+ and \[1, \1\]|got \[1, (.+)\] at entry \d+ and \[\2\]",
                "filler-of-another-shape",
                ONE_SAMPLE,
                look=filler_place(look),
            ),
        ):
            reports = group.values(report())
        judge_validation(look, configs, reports)
    worlds = draw_worlds()
    judge_worlds(look, worlds, group.observe(Order(read_worlds, 1, worlds, timeout=LIMIT))[0])
