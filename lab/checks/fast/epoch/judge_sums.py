"""Judges the sums of an epoch's loss: nobody waits for them before the end, and they keep their digits."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import fail
from lab.checks.common.tensors import number
from lab.grading.diagnosis import Diagnosis

# In bf16 a number near 1024 is a multiple of 8: three samples more are lost, and of their loss, 9, only 8 count.
LARGE_LOSSES, LARGE_SIZES = [1.0] + [3.0] * 40, [1024] + [3] * 40
COARSE = {"losses": LARGE_LOSSES, "sizes": LARGE_SIZES}


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


def judge_read_once(look: Look, reports: Sequence[Any]) -> None:
    """Nothing is read of what is to be reduced."""
    for report in reports:
        if report["reduced"] and (early := [wait for wait in report["waits"] if not wait["reduced"]]):
            raise Diagnosis(
                "read-before-reduced",
                saw=f"after the last step, and before the all-reduce, the CPU had a tensor's numbers: "
                f"{early[0]['read']}.",
                means="The sums are on the device: reduce them there (torch.stack() joins them), then read.",
                look=look.line(early[0]["line"]),
            )


def judge_digits(look: Look, reports: Sequence[Any]) -> None:
    """An epoch of many samples, with losses in bf16."""
    samples = sum(LARGE_SIZES)
    right = sum(loss * size for loss, size in zip(LARGE_LOSSES, LARGE_SIZES, strict=True)) / samples
    for rank, report in enumerate(reports):
        if report["error bf16"]:
            fail(report["error bf16"], f"epoch_loss() of losses in bf16 on rank {rank}", look)
        value = report["value bf16"]
        if value is None or not abs(value - right) < right / 100:
            raise Diagnosis(
                "sums-in-type-of-loss",
                saw=f"with losses in bf16, {samples} samples on each rank, rank {rank} returned "
                f"{'no number' if value is None else number(value)}; their mean is {number(right)}.",
                means="bf16 has two digits, and a long sum loses what is added: add up in float64.",
                look=look(
                    r"\.dtype", r"zeros_like|new_\w+\(|torch\.(zeros|tensor)\(", r"\+=|\bsum\(", r"all_reduce"
                ),
            )
