"""Judges what get_ddp_model() returns: the wrapper, its device and its ranks, and training with it."""

from collections.abc import Sequence
from typing import Any

from lab.base.words import rank_list
from lab.checks.common.gradients import verdict
from lab.checks.common.judge_left import judge_swallowed
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers
from lab.checks.common.report import expect, expect_returned
from lab.checks.common.tensors import Tensors, all_close, example, expect_tensors
from lab.checks.common.tiny import Batch, loss_and_gradients, parts, weights_after_steps
from lab.checks.ddp_utils.judge_pretended import (
    DDP,
    NOT_ALL_RANKS,
    PRETENDED,
    WRAPPING,
    group_at,
    judge_cpu,
    judge_device,
    judge_kept,
    judge_network,
    judge_output,
    judge_pretended_groups,
)
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

WRAPS = "wraps the model for all ranks"


def judge_ddp(
    look: Look, reports: Sequence[dict[str, Any]], given: dict[str, Any], batches: Sequence[Batch]
) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        given: what the ranks received.
        batches: those that the ranks had their parts of.
    """
    expect(reports, {"type": str, "ddp": bool})
    with part(WRAPS):
        for report in reports:
            judge_type(look, report)
    expect(reports, {"inside": str, "bucket_cap_mb": float, "types": [str]})
    with part(WRAPS):
        judge_types(look, reports[0]["types"])
    expect(reports, dict.fromkeys(("gpu", "cpu", "alone"), PRETENDED) | {"group": [int], "swallowed": str})
    expect(reports, dict.fromkeys(("start", "gradients", "end"), dict) | {"buffer": [float]})
    compared("size of a bucket in MiB", [report["bucket_cap_mb"] for report in reports], given["bucket_cap_mb"])
    with part(WRAPS):
        judge_inside(look, reports[0])
        judge_kept(look, reports[0])
    with part("the bucket size", after=[WRAPS]):
        judge_cap(look, reports[0]["bucket_cap_mb"], given["bucket_cap_mb"])
        if gpu := reports[0]["gpu"]:
            judge_cap(look, gpu["bucket_cap_mb"], given["bucket_cap_mb"], "for a GPU ")
    with part("on the device first", after=[WRAPS]):
        for rank, report in enumerate(reports):
            judge_device(look, report["gpu"], rank, given["gpus"][rank])
            if report["gpu"]:
                judge_output(look, report["gpu"], rank, given["gpus"][rank])
        judge_cpu(look, reports[0]["cpu"])
    with part(WRAPS):
        for rank, report in enumerate(reports):
            judge_group(look, report["group"], rank, len(reports))
            judge_pretended_groups(look, report, rank)
            judge_network(look, report)
        judge_swallowed(look, reports[0]["swallowed"], DDP)
    with part("trains as one process would", after=[WRAPS]):
        judge_training(look, reports, given["weights"], batches)


def judge_types(look: Look, types: list[str]) -> None:
    if types != ["float32"]:
        raise Diagnosis(
            "parameters-not-fp32",
            saw=f"the parameters are {', '.join(types)} after get_ddp_model(); they were float32.",
            means="In low precision small updates are rounded away; autocast computes in it, parameters stay.",
            look=look(r"float|half|double", r"\.to\("),
        )


def judge_type(look: Look, report: dict) -> None:
    expect_returned(look, report["type"], "The training loop needs the wrapped model.", look(*WRAPPING))
    if report["type"] == "DataParallel":
        raise Diagnosis(
            "data-parallel",
            saw="get_ddp_model() returned a DataParallel, not a DistributedDataParallel.",
            means="DataParallel spreads a batch over the GPUs of one process; the ranks stay on their own.",
            look=look(*WRAPPING),
        )
    if not report["ddp"]:
        raise Diagnosis(
            "not-wrapped",
            saw="get_ddp_model() returned "
            + ("the bare model" if report["type"] == "TinyNet" else f"a {report['type']}")
            + ", not a DistributedDataParallel.",
            means="backward() would average nothing: each rank would train a model of its own.",
            look=look(r"\breturn\b(?!.*Parallel\()", *WRAPPING),
        )


def judge_inside(look: Look, report: dict) -> None:
    """Is it around this model?"""
    if report["inside"] == f"another {DDP}":
        raise Diagnosis(
            "wrapped-twice",
            saw=f"inside {DDP} there is another one, and the model in that.",
            means="One of them averages already, and its .module is to be the model: wrap it once.",
            look=look(r"Parallel\(", last=True),
        )
    if report["inside"] != "the model":
        raise Diagnosis(
            "wrapped-a-copy",
            saw=f"inside DistributedDataParallel there is {report['inside']}, not the model it was given.",
            means="Whoever still holds the model that was handed in would not see it trained.",
            look=look(r"copy", *WRAPPING),
        )


def judge_cap(look: Look, got: float, cap: float, where: str = "") -> None:
    """Has it the bucket size that was asked for?"""
    if abs(got - cap) > 0.01:
        without = look(r"Parallel\w*\((?!.*bucket_cap_mb).*\)")
        named = [] if got == 25 else [r"bucket_cap_mb"]
        raise Diagnosis(
            "bucket-cap-ignored" if got == 25 else "bucket-cap-wrong",
            saw=f"{where}bucket_cap_mb={cap:g} was asked for; the buckets take {got:g} MiB.",
            means="A sweep over bucket sizes would measure the same thing every time."
            if got == 25
            else "The argument is in MiB, and so is DDP's: hand it on as it is.",
            look=without
            if got == 25 and line_of(without)
            else look.source_of(DDP, "bucket_cap_mb")
            or look(r"bucket_cap_mb\b(?!\s*=?\s*bucket_cap_mb\s*[,)}])", *named, *WRAPPING),
        )


def judge_group(look: Look, members: list[int], rank: int, world_size: int) -> None:
    if sorted(members) != list(range(world_size)):
        raise Diagnosis(
            "not-all-ranks",
            saw=f"rank {rank} of {world_size} averages its gradients with {rank_list(members)} only.",
            means=NOT_ALL_RANKS,
            look=group_at(look),
        )


def judge_buffers(look: Look, reports: Sequence[dict]) -> None:
    """Rank 0's, when it is wrapped and in each forward pass. Rank r had r + 1 everywhere."""
    at_first, later = (
        [rank for rank, report in enumerate(reports) if any(value != 1 for value in report["buffer"][part])]
        for part in (slice(2), slice(2, None))
    )
    off, also_here = (reports[0][where]["switched_off"] if reports[0][where] else [] for where in ("gpu", "cpu"))
    off = [name for name in off if name not in also_here]  # here the ranks have shown what that does
    if at_first:
        saw = f"rank {at_first[0]} does not have rank 0's values in a buffer when the model is wrapped."
    elif later:
        saw = f"after 2 steps rank {later[0]} does not have rank 0's values in a buffer."
    elif off:
        saw = f"for a GPU the model is wrapped with {off[0]}=False."
    else:
        return
    raise Diagnosis(
        "buffers-part",
        saw=saw,
        means="No gradient ever brings buffers, as BatchNorm's statistics, together: DDP sends them.",
        look=look(r"broadcast_buffers|sync_buffers|param_sync|init_sync", *WRAPPING),
    )


def judge_training(
    look: Look, reports: Sequence[dict], weights: Sequence[Tensors], batches: Sequence[Batch]
) -> None:
    """Rank 0's weights at the start, the whole batch's gradients, the twin's weights at the end."""
    world_size = len(reports)
    start = [report["start"] for report in reports]
    expect_tensors(start, weights[0])
    if rank := next((r for r in range(world_size) if not all_close(start[r], weights[0])), 0):
        raise Diagnosis(
            "ranks-start-apart",
            saw=f"rank {rank} does not start with rank 0's weights: {example(start[rank], weights[0])}.",
            means="The ranks would average gradients of different models.",
            look=look(r"init_sync", *WRAPPING),
        )
    if not all_close(start[0], weights[0]):
        raise Diagnosis(
            "weights-changed",
            saw=f"wrapping has changed rank 0's weights: {example(start[0], weights[0])}.",
            means="Rank 0's model must be what every rank starts from.",
            look=in_helpers(look, r"\binit\.|\w_\(|\.data\b|load_state_dict|reset_parameters\(|\bbroadcast\(")
            or look(*WRAPPING),
        )
    mean = loss_and_gradients(weights[0], batches[0])[1]
    local = [loss_and_gradients(weights[0], own)[1] for own in parts(batches[0], world_size)]
    gradients = [report["gradients"] for report in reports]
    compared("gradients of step 1", gradients, mean)
    if missing := [name for name in mean if any(name not in one for one in gradients)]:
        raise Diagnosis(
            "parameters-frozen",
            saw=f"after backward() there is no gradient for {', '.join(missing[:3])}"
            + (", ..." if len(missing) > 3 else "."),
            means="Wrapping must not switch off what is to be trained: these weights would stay as they are.",
            look=look(r"requires_grad", r"no_grad|detach", *WRAPPING),
        )
    expect_tensors(gradients, mean)
    found = verdict(gradients, mean, local)
    if found.kind != "mean":
        names = {
            "divided twice": ("averaged-twice", "DDP has averaged already; nothing must be divided after it."),
            "sum": ("hook-sums", "DDP has a hook do all the work, dividing too: a sum is divided by nobody."),
            "local": ("gradients-not-synchronised", "The wrapper is there, but its all-reduce does not run."),
        }
        hooked = line_of(look(r"register\w*hook"))
        name, means = names.get(
            found.kind if found.kind != "sum" or hooked else "other",
            ("wrong-gradients", "The step is not the one that a single process would take."),
        )
        place = look(
            *([r"\.value\(\)"] if name == "hook-sums" else []),
            r"register\w*hook|no_sync|require_backward|\bdiv|/",
            *WRAPPING,
        )
        raise Diagnosis(name, saw=found.saw, means=means, look=place)
    judge_buffers(look, reports)
    twin = weights_after_steps(weights[0], batches)[-1]
    end = [report["end"] for report in reports]
    compared("weights after 2 steps", end, twin)
    expect_tensors(end, twin)
    for rank in range(world_size):
        if not all_close(end[rank], twin):
            raise Diagnosis(
                "updates-differ",
                saw=f"after 2 steps on rank {rank} {example(end[rank], twin)}, as one process has.",
                means="Training on several ranks must be training on one, only faster.",
                look=look(*WRAPPING),
            )
