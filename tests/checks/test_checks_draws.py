"""What is drawn anew tells right from wrong by far: no verdict hangs on the draw."""

from pathlib import Path
from statistics import fmean, median

import pytest
import torch

from lab.checks.common.look import Look
from lab.checks.common.tensors import TOLERANCE
from lab.checks.common.tiny import TinyNet, fresh_generator
from lab.checks.data.draw import draw_validation_sets
from lab.checks.fast.draw import Training, draw_training, is_steady
from lab.checks.fast.gain.draw import draw_gain
from lab.checks.fast.gain.judge import judge_time
from lab.checks.fast.means import draw_epoch, mean_of, mistakes_of
from lab.checks.from_scratch.zero.draw import draw as draw_zero
from lab.checks.model.observe import give_both_signs
from lab.grading.diagnosis import Diagnosis

DRAWS = 30


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_no_label_is_a_number_that_a_shard_knows(world_size: int):
    for _ in range(DRAWS):
        for drawn in draw_validation_sets(world_size):
            labels, size = set(drawn["valid"].tolist()), len(drawn["valid"])
            assert labels.isdisjoint({0, size, size - 1, world_size, drawn["batch"]})


def test_a_number_that_is_a_parameter_of_its_own_is_far_from_zero():
    for _ in range(DRAWS):
        single = [one for weights in draw_zero(fresh_generator()).weights for one in weights if one.numel() == 1]
        assert single
        assert all(one.abs().item() >= 1 for one in single), "rounding would be a part of it that is seen"


def test_a_mean_that_a_mistake_makes_is_another():
    for _ in range(DRAWS):
        drawn = draw_epoch(world_size=2)
        for losses in (drawn["losses"], drawn["losses again"]):
            right = mean_of(losses, drawn["sizes"])
            for candidates, _ in mistakes_of(losses, drawn["sizes"]).values():
                for means in candidates:
                    assert any(abs(mean - right) > 2 * TOLERANCE * right for mean in means)


def test_a_training_is_drawn_in_which_rounding_does_not_grow():
    drawn = draw_training(fresh_generator(), world_size=1)
    assert is_steady(drawn)
    alike = [[(5 + images / 1e4, labels) for images, labels in own] for own in drawn.batches]
    assert not is_steady(Training(drawn.weights, alike)), "a norm makes much of what is left of their differences"


def test_a_fixed_number_of_times_left_out_is_seen():
    """Whichever of them a measurement has for a warm-up, the other one has not."""
    for _ in range(DRAWS):
        times = draw_gain(torch.Generator())["times"]
        for left_out in range(7):
            both = [
                (median(map(sum, one["steps"][left_out:])), median(map(sum, one["steps"][one["warm_up"] :])))
                for one in times
            ]
            assert any(abs(found - right) > 10 * TOLERANCE * right for found, right in both)


def test_every_mistake_in_a_time_has_its_own_name():
    for _ in range(DRAWS):
        given = draw_gain(torch.Generator())["times"][0]
        warm_up, times = given["warm_up"], [launch + work for launch, work in given["steps"]]
        timed = times[warm_up:]
        mistakes = {
            "mean-not-median": fmean(timed),
            "warm-up-timed": median(times),
            "cut-after-sorting": median(sorted(times)[warm_up:]),
            "fastest-taken": min(timed),
            "slowest-taken": max(timed),
            "not-divided": sum(timed),
            "not-in-seconds": 1000 * median(timed),
            "step-left-out": median(timed[1:]),
        }
        for name, seconds in mistakes.items():
            report = {"error": None, "type": "float", "seconds": seconds, "taken": len(times)}
            with pytest.raises(Diagnosis) as told:
                judge_time(
                    Look(Path(__file__).parent, "fast.py", "seconds_per_step"),
                    report | {"cpu_time": False, "readings": [{"line": 1, "taken": 0, "busy": False}]},
                    given,
                )
            assert told.value.name == name


def test_logits_of_both_signs_do_not_hang_on_the_draw():
    net, images = TinyNet(), torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        net.classifier.bias.fill_(30.0)  # as one of 1024 networks has it: ten positive numbers
        assert not bool((net(images) < 0).any())
        give_both_signs(net)
        assert bool((net(images) < 0).any(dim=1).all())
        assert bool((net(images) > 0).any(dim=1).all())
