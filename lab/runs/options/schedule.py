"""The learning rate as a pure function of the step, so that a resumed run needs no scheduler state.

After nanoGPT's train.py. Warm-up as in Goyal et al. 2017 (arXiv:1706.02677), cosine as in Loshchilov and Hutter
2016 (arXiv:1608.03983, without restarts), steps as in He et al. 2015 (arXiv:1512.03385, section 4.2).
"""

import math

SCHEDULES = ("constant", "cosine", "step")

MILESTONES = (0.5, 0.75)  # of all steps: there the schedule "step" divides the rate by ten
STEP_FACTOR = 0.1


def rate_factor(step: int, *, schedule: str, total_steps: int, warmup_steps: int = 0) -> float:
    """What the peak learning rate is multiplied by at optimizer step `step`, counted from 0.

        warm-up   (step + 1) / warmup_steps            while step < warmup_steps; then, with
                  t = (step - warmup_steps) / (total_steps - warmup_steps):
        constant  1
        cosine    (1 + cos(pi t)) / 2
        step      1, from half of all steps on 0.1, from three quarters on 0.01

    Raises:
        ValueError: no such schedule.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}: choose one of {', '.join(SCHEDULES)}")
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "cosine":
        t = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(t, 1.0)))
    if schedule == "step":
        return STEP_FACTOR ** sum(step >= milestone * total_steps for milestone in MILESTONES)
    return 1.0
