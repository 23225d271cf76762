"""Checks of section 5: everything together, once for each strategy, up to where training would begin."""

from functools import partial
from typing import Any

from lab.checks.common.tiny import LIMIT
from lab.checks.main.draw import Rehearsal, draw_rehearsals
from lab.checks.main.judge_calls import Events, calls, events_of, judge_calls
from lab.checks.main.judge_data import earlier, judge_data
from lab.checks.main.judge_end import judge_end, judge_evaluation, judge_test, judge_training
from lab.checks.main.judge_failure import judge_error, judge_failure
from lab.checks.main.judge_model import judge_model, judge_seeds, judge_weights
from lab.checks.main.look_made import WideLook
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

# What ranks do, by name: it imports more than the grader's own process needs.
REHEARSE = f"{__package__}.observe:rehearse"

MODEL = "builds, wraps and optimises"


@check("5.1", "sets up, loads, wraps, optimises and cleans up, for every strategy")
def puts_it_all_together(group: Group) -> None:
    look = WideLook(group.code, "main.py", "run")
    rehearsals = draw_rehearsals()
    built: list[dict[str, Any]] = []
    started = [
        group.start(Order(REHEARSE, one.world_size, one.inputs, set_up_process_group=False, timeout=LIMIT))
        for one in rehearsals
    ]
    for rehearsal, report_of in zip(rehearsals, started, strict=True):
        result = report_of()
        if not result.ok:
            judge_failure(group, look, rehearsal, result)
        reports = result.values
        everyone = events_of(reports)
        with part("every call on every rank"):
            try:
                judge_calls(look, rehearsal, everyone)
            except Diagnosis as diagnosis:
                rest = partial(judge_data, look, rehearsal, 0, everyone[0])
                raise earlier(diagnosis, rest) from None
        with part("loads and deals out the data"):
            for rank, events in enumerate(everyone):
                judge_data(look, rehearsal, rank, events)
        with part(MODEL):
            built.append(judge_weights(look, rehearsal, everyone))
        compare(rehearsal, everyone)
        for report in reports:
            with part(MODEL):
                judge_model(look, rehearsal, report["events"])
            with part("trains, tests and cleans up"):
                if not judge_evaluation(look, rehearsal, report["events"]):
                    judge_training(look, rehearsal, report["events"])
                    judge_test(look, rehearsal, report["events"])
                judge_end(look, rehearsal, report)
    with part(MODEL):
        judge_seeds(look, rehearsals, built)
    failing = next(one for one in rehearsals if one.world_size == 1).failing()
    order = Order(REHEARSE, failing.world_size, failing.inputs, set_up_process_group=False, timeout=LIMIT)
    result = group.report(order)
    if not result.ok:
        judge_failure(group, look, failing, result)
    with part("trains, tests and cleans up"):
        judge_error(look, failing, result)


def compare(rehearsal: Rehearsal, everyone: list[Events]) -> None:
    """For lab check --why: what came to train(), or to begin() in a dry run, beside what the command line says."""
    used = [(calls(events, "train") or calls(events, "begin") or [{}])[0] for events in everyone]
    wanted = {"kind": rehearsal.strategy, "optimizer": rehearsal.optimizer, "lr": rehearsal.learning_rate}
    for name, value in wanted.items():
        compared(f"{rehearsal}: {name}", [str(one.get(name)).lower() for one in used], str(value))
