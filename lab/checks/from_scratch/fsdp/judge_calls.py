"""Judges the collectives of MyFSDP: how many, when, and what is kept meanwhile."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import RETURN, Look
from lab.checks.from_scratch.fsdp.net import BLOCKS
from lab.grading.diagnosis import Diagnosis, unusable_report

UNITS = BLOCKS + 1


def judge_waits(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """What a unit is made of, and what fill() gathers, is there when they have ended."""
    for rank, report in enumerate(reports):
        if report["unwaited"]:
            raise Diagnosis(
                "not-waited",
                saw=f"rank {rank} went on with a tensor into which others were still sending.",
                means="With async_op=True it has only begun, and what is read may be old: wait() for it before.",
                look=look.line(report["unwaited"][0]),
            )


def judge_calls(look: Look, rank: int, report: dict[str, Any], ranks: int) -> None:
    names = {part: [call["name"] for call in report[part]] for part in ("forward", "backward", "finish")}
    everything = [name for part in names.values() for name in part]
    gathers, scatters = (
        {part: sum(word in name for name in names[part]) for part in names} for word in ("gather", "scatter")
    )
    reduced = [name for name in everything if "allreduce" in name]
    if reduced or sum(scatters.values()) < UNITS:
        raise Diagnosis(
            "all-reduced" if reduced else "not-reduce-scattered",
            saw=f"in a step with {UNITS} units rank {rank} called {sum(scatters.values())} reduce-scatters"
            + (f", and {len(reduced)} all-reduces." if reduced else "."),
            means="A rank needs the sum of its own shard only: a reduce-scatter sends half as much.",
            look=look.into("Unit.reduce")(r"reduce"),
        )
    if not report["waited"]:
        raise Diagnosis(
            "waits-in-backward",
            saw=f"nothing was left to wait for in finish() of rank {rank}.",
            means="Begun with async_op=True, a reduce-scatter travels while the block before is computed.",
            look=look.into("Unit.reduce")(r"\.wait\(", r"reduce"),
        )
    if report["waited in reduce"]:
        raise Diagnosis(
            "waits-in-backward",
            saw=f"in the backward pass reduce() of rank {rank} waited {report['waited in reduce']} times.",
            means="Begun with async_op=True, a reduce-scatter travels while the block before is computed.",
            look=look.into("Unit.reduce")(r"\.wait\(", r"reduce"),
        )
    if report["changed under way"]:
        raise Diagnosis(
            "changed-under-way",
            saw=f"reduce() of rank {rank} changes a tensor of its reduce-scatter after that has begun.",
            means="Nothing has come yet, and nobody has waited: divide the gradient before it is sent.",
            look=look.line(report["changed under way"][0]),
        )
    if min(report["kept in pending"], default=ranks) < ranks:
        raise Diagnosis(
            "gradient-not-kept",
            saw=f"after reduce() self.pending of rank {rank} holds {min(report['kept in pending'])} times a "
            f"shard; the whole gradient is {ranks} times as long.",
            means="It is still being sent: until finish() has waited, self.pending keeps it alive.",
            look=look.into("Unit.reduce")(r"pending", RETURN),
        )
    if gathers["forward"] != UNITS:
        raise Diagnosis(
            "gathers-per-block",
            saw=f"in the forward pass rank {rank} called {gathers['forward']} all-gathers for {UNITS} units.",
            means="One for each unit, right before its module computes.",
            look=look(r"before_forward|hook"),
        )
    if gathers["backward"] > BLOCKS:
        raise Diagnosis(
            "gathers-too-often",
            saw=f"in the backward pass rank {rank} called {gathers['backward']} all-gathers for {BLOCKS} blocks.",
            means="Each block is gathered once more; what is left is still whole from the forward pass.",
            look=look.line(report["root hooks"][-1]) if report["root hooks"] else look(r"gather_again"),
        )


def judge_gradients(look: Look, rank: int, report: dict[str, Any]) -> None:
    for elements, gradient in zip(report["elements"], report["gradients"], strict=False):
        if gradient is not None and [type(value) for value in gradient] != [int, str]:
            raise unusable_report("a gradient is told by other things than its length and its type")
        if gradient is None or list(gradient) != [elements, "torch.float32"]:
            said = "none" if gradient is None else f"one of {gradient[0]} numbers in {gradient[-1]}"
            raise Diagnosis(
                "gradient-of-other-shape",
                saw=f"a shard of {elements} numbers of rank {rank} has as its gradient: {said}.",
                means="The optimizer adds the gradient to the shard: same length, fp32.",
                look=look.into("Unit.reduce")(r"empty_like|reduce"),
            )


def judge_kept(look: Look, rank: int, report: dict[str, Any]) -> None:
    """What a reduce-scatter was given is in self.pending."""
    if report["not in pending"]:
        raise Diagnosis(
            "gradient-not-kept",
            saw=f"after reduce() self.pending of rank {rank} does not hold the tensor that is being sent.",
            means="It is read until finish() has waited: keep the very tensor that the reduce-scatter was given.",
            look=look.into("Unit.reduce")(r"pending", RETURN),
        )
