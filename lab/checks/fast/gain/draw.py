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
    """
    warm_up, steps = random.choice([4, 5]), random.choice([5, 7])
    slow = [(random.uniform(0.2, 0.3), random.uniform(0.5, 0.9)) for _ in range(warm_up)]
    usual = [(random.uniform(0.001, 0.002), random.uniform(0.02, 0.04)) for _ in range(steps)]
    usual.sort()  # the first has the shortest launch, and below the shortest work: to lose it moves the median
    usual[0] = (usual[0][0], random.uniform(0.015, 0.018))
    usual[random.randrange(1, steps)] = (0.002, random.uniform(0.3, 0.4))
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
