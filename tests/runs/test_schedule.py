"""The learning rate as a function of the step."""

import math

import pytest

from lab.runs.options.schedule import SCHEDULES, rate_factor


def factors(schedule: str, total: int, warmup: int = 0) -> list[float]:
    return [rate_factor(step, schedule=schedule, total_steps=total, warmup_steps=warmup) for step in range(total)]


def test_constant_is_one():
    assert factors("constant", 5) == [1.0] * 5


def test_cosine_goes_from_one_to_nearly_zero():
    values = factors("cosine", 100)
    assert values[0] == 1.0
    assert values[50] == pytest.approx(0.5)
    assert values[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.99)))
    assert values == sorted(values, reverse=True)


def test_step_divides_by_ten_at_half_and_at_three_quarters():
    assert factors("step", 8) == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_grows_evenly_to_the_full_rate(schedule):
    values = factors(schedule, 100, warmup=4)
    assert values[:4] == [0.25, 0.5, 0.75, 1.0]
    assert values[4] == 1.0


def test_cosine_after_warm_up_covers_the_steps_that_are_left():
    values = factors("cosine", 104, warmup=4)
    assert values[4:] == factors("cosine", 100)


def test_steps_beyond_the_end_have_the_last_rate_of_cosine():
    assert rate_factor(200, schedule="cosine", total_steps=100) == 0.0


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="unknown schedule 'linear': choose one of constant, cosine, step"):
        rate_factor(0, schedule="linear", total_steps=1)
