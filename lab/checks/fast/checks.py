"""Checks of section 8: where a step's time goes, and a step that is recorded once and replayed."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.tiny import LIMIT, fresh_generator
from lab.checks.fast.draw import WARM_UP, Training, draw_batches, draw_training
from lab.checks.fast.gain.draw import draw_gain
from lab.checks.fast.gain.judge import judge_gain
from lab.checks.fast.judge_batches import judge_batches
from lab.checks.fast.judge_capture import judge_another_model, judge_capture, judge_inputs_elsewhere
from lab.checks.fast.judge_epoch import judge_epoch
from lab.checks.fast.judge_rate import draw_rates, judge_rates
from lab.checks.fast.judge_replays import COPIED, judge_written
from lab.checks.fast.means import draw_epoch
from lab.checks.fast.profiles.draw import Span, draw_profiles
from lab.checks.fast.profiles.judge import judge_profiles
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

# What ranks do, by name: it imports more than the grader's own process needs.
TAKE_BATCHES = f"{__package__}.observe_batches:take_batches"
CAPTURE_AND_REPLAY = f"{__package__}.observe_capture:capture_and_replay"
CAPTURE_WITHOUT_DDP = f"{__package__}.observe_capture:capture_without_ddp"
RUN_EPOCH = f"{__package__}.observe_epoch:run_epoch"
MEASURE = f"{__package__}.gain.observe:measure"
READ_PROFILES = f"{__package__}.profiles.observe:read_profiles"
FOLLOW_RATES = f"{__package__}.observe_rate:follow_rates"


@check("8.1", "every moment of a step has one cause")
def reads_a_profile(group: Group) -> None:
    profiles = draw_profiles()
    look = Look(group.code, "fast.py", "time_by_cause")

    def read(some: Sequence[Sequence[Span]]) -> Any:
        return group.observe(Order(READ_PROFILES, 1, some, timeout=LIMIT, set_up_process_group=False))

    judge_profiles(look, read(profiles), profiles, read)


@check("8.2", "the mean over all ranks and samples, and no wait before the last step")
def waits_once_an_epoch(group: Group) -> None:
    drawn = draw_epoch(world_size=2)
    look = Look(group.code, "fast.py", "epoch_loss")
    judge_epoch(look, group.observe(Order(RUN_EPOCH, 2, drawn, timeout=LIMIT)), drawn)


@check("8.3", "whole batches in the sampler's order, from images that were copied once")
def picks_batches_on_the_device(group: Group) -> None:
    given = draw_batches(fresh_generator(), world_size=2)
    look = Look(group.code, "fast.py", "DeviceBatches.__iter__")
    judge_batches(look, group.observe(Order(TAKE_BATCHES, 2, given, timeout=LIMIT)), given)


@check("8.4", "the recorded step is replayed on each batch, under DDP on two ranks")
def replays_what_it_recorded(group: Group) -> None:
    training = draw_training(fresh_generator(), world_size=2)
    look = Look(group.code, "fast.py", "capture_step")
    reports = group.observe(Order(CAPTURE_AND_REPLAY, 2, sent(training), timeout=LIMIT))
    try:
        judge_capture(look, reports, training)
    except Diagnosis as told:
        if told.name not in COPIED:
            raise
        again = sent(training) | {"notes what is written": True}
        judge_written(look, group.observe(Order(CAPTURE_AND_REPLAY, 2, again, timeout=LIMIT)), told)
        raise


@check("8.4", "the same without DDP: in a CUDA graph, where this machine has a GPU", after_passed=True)
def replays_without_ddp(group: Group) -> None:
    training = draw_training(fresh_generator(), world_size=1)
    look = Look(group.code, "fast.py", "capture_step")
    reports = group.observe(Order(CAPTURE_WITHOUT_DDP, 1, sent(training), timeout=3 * LIMIT))
    judge_capture(look, reports, training)
    judge_inputs_elsewhere(look, reports)
    judge_another_model(look, reports[0])


def sent(training: Training) -> dict[str, object]:
    return {"weights": training.weights, "batches": training.batches, "warm_up": WARM_UP}


@check("8.5", "replays use the rate that was set last, on each of two ranks")
def replays_follow_the_rate(group: Group) -> None:
    given = draw_rates(fresh_generator())
    look = Look(group.code, "fast.py", "capturable_sgd")
    judge_rates(look, group.observe(Order(FOLLOW_RATES, 2, given, timeout=LIMIT)), given)


@check("8.6", "the median of whole steps, and the largest difference of two models")
def measures_gain_and_difference(group: Group) -> None:
    given = draw_gain(fresh_generator())
    look = Look(group.code, "fast.py", "seconds_per_step")
    alone = Order(MEASURE, 1, given, timeout=LIMIT, set_up_process_group=False)
    judge_gain(look, group.observe(alone), given)
