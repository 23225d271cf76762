"""What the check of 8.6 draws anew for each run: times of steps, and models that differ in known ways."""

import math
import random
from typing import Any

import torch

from lab.checks.common.tiny import TinyNet, draw_weights

NAN = math.nan
WEIGHT, LAST, BUFFER = "blocks.0.2.weight", "classifier.bias", "blocks.0.3.running_var"
COUNT, BYTES = "blocks.0.3.num_batches_tracked", "bytes"
SHORT, MANY, DOUBLE = "short", "many", "wide"


def draw_gain(generator: torch.Generator) -> dict[str, Any]:
    """Steps of which the first are slow and one later one too, and networks that differ in known ways.

    Then as many steps again, or so, but an even number: those in the middle take times that are far apart.
    How many steps are warm-up, and how many count, is drawn so that no mistake's time is that of another one:
    of 4 and 5, say, the median of all nine is the slowest of those that count.
    """
    warm_up, steps = random.choice([(4, 7), (6, 5), (6, 9)])
    slow = [(random.uniform(0.2, 0.3), random.uniform(0.5, 0.9)) for _ in range(warm_up)]
    works = [0.02 + 0.003 * step + random.uniform(0, 0.001) for step in range(steps)]
    usual = [(random.uniform(0.001, 0.002), work) for work in works]
    first, *others = usual  # below the others: to lose it moves the median
    others[random.randrange(len(others))] = (0.002, random.uniform(0.3, 0.4))
    usual = [first, *random.sample(others, len(others))]
    works = [0.05 + 0.01 * step + 0.03 * (step >= 3) + random.uniform(0, 0.004) for step in range(6)]
    even = [(random.uniform(0.001, 0.002), work) for work in works]
    small, large = random.uniform(0.1, 0.3), random.uniform(0.5, 0.9)
    return {
        "times": [
            {"warm_up": warm_up, "steps": slow + usual},
            {"warm_up": 3, "steps": random.sample(slow, 3) + random.sample(even, len(even))},
        ],
        "weights": TinyNet(batchnorm=True).state_dict() | draw_weights(generator),
        "changes": [
            ([],),
            ([(WEIGHT, -large), (LAST, small)],),
            ([(WEIGHT, large), (LAST, -small)],),
            ([(WEIGHT, small), (BUFFER, large)],),
            ([(WEIGHT, small), (COUNT, 3.0)],),
            ([(WEIGHT, small), (BYTES, 2.0)],),
            ([(SHORT, 0.5)],),
            ([(MANY, 3.0)],),
            ([(DOUBLE, 0.01)],),
            ([(WEIGHT, large), (WEIGHT, -small)],),  # two numbers of one tensor
            ([(WEIGHT, NAN), (LAST, small)],),
            ([(WEIGHT, small), (LAST, NAN)],),
            ([(WEIGHT, small), (BUFFER, NAN)],),
            ([(WEIGHT, NAN), (LAST, small)], [(WEIGHT, NAN)]),
        ],
    }
