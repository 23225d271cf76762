"""What is drawn anew tells right from wrong by far: no verdict hangs on the draw."""

from statistics import median

import pytest
import torch

from lab.checks.common.tensors import TOLERANCE
from lab.checks.common.tiny import fresh_generator
from lab.checks.data.draw import draw_validation_sets
from lab.checks.fast.draw import Training, draw_training, is_steady
from lab.checks.fast.gain.draw import draw_gain
from lab.checks.fast.means import draw_epoch, mean_of, mistakes_of
from lab.checks.from_scratch.zero.draw import draw as draw_zero

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
        first = times[0]["steps"]
        timed = sorted(map(sum, first[times[0]["warm_up"] :]))
        assert abs(median(map(sum, first)) - timed[-1]) > 0.01, "the slowest of those that count is told from it"
