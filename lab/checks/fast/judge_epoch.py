"""Judges an epoch's loss: the mean over all ranks and samples, and nobody waited for it on the way."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_around import kept_at
from lab.checks.common.look_values import skips
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, remembered
from lab.checks.common.tensors import close, number
from lab.checks.fast.judge_mean import MAKES, USED_UP, judge_half, judge_known, judge_mean
from lab.checks.fast.means import Drawn, mean_of
from lab.grading.diagnosis import Diagnosis

BATCHES_ELSEWHERE = 2  # on the pretended GPU
REPORT = {
    "error": (None, ERROR),
    "type": str,
    "value": (None, float),
    "steps": [int],
    "without gradients": int,
    "waits": [{"read": str, "steps": int, "line": int}],
    "reduced": [{"name": str, "steps": int, "line": int, "values": [float]}],
    "started": [{"name": str, "line": int, "waited": bool, "read": int}],  # with async_op=True
    "again": int,  # lines that went through the batches when there were no more, and before
    "used up": int,
    "error again": (None, ERROR),
    "value again": (None, float),
    "elsewhere": str,
    "brought": [{"steps": int, "line": int}],  # to the CPU, from a pretended GPU
}


def judge_epoch(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, REPORT)
    for rank, report in enumerate(reports):
        if report["error"]:
            fail(report["error"], f"epoch_loss() on rank {rank}", look)
        judge_steps(look, report, len(drawn["sizes"][rank]))
    if count := reports[0]["without gradients"]:
        raise Diagnosis(
            "no-gradients-in-the-step",
            saw=f"{count} times train_step() was called where no gradients are computed.",
            means="It is a training step, with a backward pass of its own: only the sums need no gradients.",
            look=look(r"no_grad|inference_mode|set_grad_enabled", r"train_step\("),
        )
    for report in reports:
        judge_waits(look, report)
    for rank, report in enumerate(reports):
        judge_kind(look, rank, report)
    expect_as_many([report["steps"] for report in reports], len(drawn["sizes"][0]))
    for report in reports:
        judge_started(look, report["started"])
    judge_mean(look, reports, drawn)
    judge_again(look, reports, drawn)
    if early := [one for one in reports[0]["brought"] if one["steps"] < BATCHES_ELSEWHERE]:
        raise Diagnosis(
            "waits-in-the-loop",
            saw="with losses on a GPU (here only pretended): to() brought a tensor to the CPU after "
            f"{early[0]['steps']} of {BATCHES_ELSEWHERE} steps.",
            means="For each, the CPU waits until the GPU has done its step, and launches nothing meanwhile.",
            look=look.source_of("all_reduce", "tensor", 0, like=MAKES) or look.line(early[0]["line"]),
        )
    if problem := reports[0]["elsewhere"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with losses on a GPU (here only pretended): {problem}",
            means="What is added up must be where the losses are: the argument device says where.",
            look=look.source_of("all_reduce", "tensor", 0, like=MAKES)
            or look(r"torch\.(zeros|tensor)\(", r"all_reduce"),
        )


def judge_steps(look: Look, report: dict[str, Any], count: int) -> None:
    steps = report["steps"]
    if list(steps) == list(range(count)):
        return
    saw = f"of {count} batches, train_step() was called for: {', '.join(map(str, steps)) or 'none'}."
    if report["again"] and not steps:
        raise Diagnosis("batches-used-up", saw=saw, means=USED_UP, look=look.line(report["used up"]))
    raise Diagnosis(
        "not-one-step-each",
        saw=saw,
        means="Each batch gets one step, in the order in which it comes.",
        look=skips(look, look(r"train_step\(")) or look(r"\[1:|\[:-1|islice", r"train_step\(", r"for "),
    )


def judge_waits(look: Look, report: dict[str, Any]) -> None:
    """Nothing is read, and nothing reduced, before the last step has been taken."""
    count = len(report["steps"])
    if early := [wait for wait in report["waits"] if wait["steps"] < count]:
        by = early[0]["read"]
        times = f"waited {len(early)} times" if by == "synchronize()" else f"read {len(early)} tensors"
        raise Diagnosis(
            "waits-in-the-loop",
            saw=f"before the last of {count} steps the CPU had {times}: {by}.",
            means="For each, the CPU waits until the GPU has done its step, and launches nothing meanwhile.",
            look=look.line(early[0]["line"]),
        )
    if early_calls := [call for call in report["reduced"] if call["steps"] < count]:
        first = early_calls[0]
        raise Diagnosis(
            "reduced-in-the-loop",
            saw=f"{first['name']} was called after {first['steps']} of {count} steps.",
            means="Every step would wait for the slowest rank, only for a number that is needed at the end.",
            look=look.line(first["line"]),
        )


def judge_kind(look: Look, rank: int, report: dict[str, Any]) -> None:
    if report["type"] == "NoneType":
        raise Diagnosis(
            "nothing-returned",
            saw="epoch_loss() returned None.",
            means="It returns the epoch's mean loss.",
            look=look(RETURN, r"all_reduce"),
        )
    if report["value"] is None:
        raise Diagnosis(
            "not-a-number",
            saw=f"epoch_loss() returned a {report['type']} on rank {rank}.",
            means="The epoch has ended: now one number of Python's may be read, with .item().",
            look=look(RETURN),
        )


def judge_started(look: Look, started: Sequence[dict[str, Any]]) -> None:
    """Who starts a collective and goes on has to wait for it, and to read its tensor only then."""
    for one in started:
        if one["waited"] and not one["read"]:
            continue
        then = "and its tensor is read before wait()" if one["waited"] else "and nobody waited for it"
        raise Diagnosis(
            "not-waited-for",
            saw=f"{one['name']} was started with async_op=True, {then}.",
            means="What is in the sums then depends on which comes first: the sum of all ranks, or who reads it.",
            look=look.line(one["read"] if one["waited"] else one["line"]),
        )


def judge_again(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    """A second epoch, which has other losses: nothing of the first is in its mean."""
    for rank, report in enumerate(reports):
        if report["error again"]:
            fail(report["error again"], f"a second epoch_loss() on rank {rank}", look)
    first, right = (mean_of(drawn[which], drawn["sizes"]) for which in ("losses", "losses again"))
    found = [report["value again"] for report in reports]
    if all(value is not None and close(value, right) for value in found):
        return
    shown = ", ".join("no number" if value is None else number(value) for value in found)
    saw = (
        f"in a second epoch the ranks returned {shown}; its mean is {number(right)}, "
        f"and that of the first was {number(first)}."
    )
    if all(value is not None and close(value, first) for value in found):
        raise remembered(look, saw)
    numbers = [value for value in found if value is not None]
    if len(numbers) == len(found):  # what is nearly right may have passed for the first epoch
        judge_known(look, numbers, saw, drawn["losses again"], drawn["sizes"])
        judge_half(look, numbers, saw, right)
    raise Diagnosis(
        "epochs-added-up",
        saw=saw,
        means="Each call is an epoch of its own: sums that outlive it hold the losses of all that came before.",
        look=kept_at(look) or look.kept(),
    )
