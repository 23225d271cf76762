"""Checks of section 5: everything together, once for each strategy, up to where training would begin."""

from functools import partial
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.tiny import LIMIT
from lab.checks.main.draw import draw_rehearsals
from lab.checks.main.judge_calls import events_of, judge_calls
from lab.checks.main.judge_data import earlier, judge_data
from lab.checks.main.judge_end import judge_end, judge_test, judge_training
from lab.checks.main.judge_failure import judge_failure
from lab.checks.main.judge_model import judge_model, judge_seeds, judge_weights
from lab.checks.main.observe import rehearse
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis


@check("5.1", "sets up, loads, wraps, optimises and cleans up, for every strategy")
def puts_it_all_together(group: Group) -> None:
    look = Look(group.code, "main.py", "run")
    rehearsals = draw_rehearsals()
    built: list[dict[str, Any]] = []
    started = [
        group.start(Order(rehearse, one.world_size, one.inputs, set_up_process_group=False, timeout=LIMIT))
        for one in rehearsals
    ]
    for rehearsal, report_of in zip(rehearsals, started, strict=True):
        result = report_of()
        if not result.ok:
            judge_failure(group, look, rehearsal, result)
        reports = result.values
        everyone = events_of(reports)
        try:
            judge_calls(look, rehearsal, everyone)
        except Diagnosis as diagnosis:
            rest = partial(judge_data, look, rehearsal, 0, everyone[0])
            raise earlier(diagnosis, rest) from None
        for rank, events in enumerate(everyone):
            judge_data(look, rehearsal, rank, events)
        built.append(judge_weights(look, rehearsal, everyone))
        for report in reports:
            judge_model(look, rehearsal, report["events"])
            judge_training(look, rehearsal, report["events"])
            judge_test(look, rehearsal, report["events"])
            judge_end(look, rehearsal, report)
    judge_seeds(look, rehearsals, built)
