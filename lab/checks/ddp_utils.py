"""Checks of the first part of section 4: gradients averaged over the ranks, by hand and by DDP."""

from collections.abc import Sequence
from typing import NoReturn

import torch

from lab.checks._ddp import average, train_with_ddp
from lab.checks._gradients import Verdict, verdict
from lab.checks._judge import Tensors, all_close, example, expect_tensors, retold
from lab.checks._look import look
from lab.checks._report import expect
from lab.checks._tiny import (
    LIMIT,
    draw_batch,
    draw_weights,
    fresh_generator,
    loss_and_gradients,
    parts,
    weights_after_steps,
)
from lab.grading.check import Diagnosis, Ranks, check


@check("4.0", "every rank ends up with the gradients of the whole batch")
def gradients_of_the_whole_batch(ranks: Ranks) -> None:
    # Three first: there nothing that is divided by 2 or 4 looks right, or divided twice.
    for world_size in (3, 2):
        judge_average(ranks, world_size)


def judge_average(ranks: Ranks, world_size: int) -> None:
    generator = fresh_generator()
    weights, batch = draw_weights(generator), draw_batch(generator, 4 * world_size)
    mean = loss_and_gradients(weights, batch)[1]
    local = [loss_and_gradients(weights, own)[1] for own in parts(batch, world_size)]
    # After the backward pass each rank's weights are moved apart: averaging those would show.
    moved = [
        {name: value + torch.randn(value.shape, generator=generator) for name, value in weights.items()}
        for _ in range(world_size)
    ]
    inputs = {"weights": weights, "parts": parts(batch, world_size), "moved": moved}
    where = look(ranks.code, "ddp_utils.py", "average_gradients", r"all_reduce|reduce|gather|broadcast")

    with retold(
        "NoneType",
        "parameter-without-gradient",
        "A parameter that took no part in the forward pass has grad None: leave it out.",
    ):
        reports = ranks.observe(average, world_size, inputs, timeout=LIMIT)
    expect(reports, {"weights": dict, "gradients": dict, "pending": int})
    if pending := max(report["pending"] for report in reports):
        raise Diagnosis(
            "not-waited-for",
            saw=f"{pending} collectives were started with async_op=True, and nobody waited for them.",
            means="What is in the gradients then depends on which comes first: the sum, or the line that uses it.",
            look=look(ranks.code, "ddp_utils.py", "average_gradients", r"async_op", r"reduce"),
        )
    observed = [report["weights"] for report in reports]
    expect_tensors(observed, weights)
    if not all(all_close(observed[rank], moved[rank]) for rank in range(world_size)):
        fail_for_weights(observed, moved, where)

    gradients = [report["gradients"] for report in reports]
    gone = [name for name in mean if any(name not in grads for grads in gradients)]
    if gone:
        raise Diagnosis(
            "gradients-gone",
            saw=f"after average_gradients() there is no gradient any more for {', '.join(gone[:3])}"
            + (", ..." if len(gone) > 3 else "."),
            means="optimizer.step() leaves out parameters whose grad is None.",
            look=where,
        )
    expect_tensors(gradients, mean)
    found = verdict(gradients, mean, local)
    if found.kind != "mean":
        fail_for_gradients(found, world_size, where)


def fail_for_weights(observed: Sequence[Tensors], before: Sequence[Tensors], where: str) -> NoReturn:
    world_size = len(before)
    total = {name: torch.stack([weights[name] for weights in before]).sum(dim=0) for name in before[0]}
    mean = {name: value / world_size for name, value in total.items()}
    rank = next(r for r in range(world_size) if not all_close(observed[r], before[r]))
    saw = f"on rank {rank} a weight has changed: {example(observed[rank], before[rank])}"
    if all_close(observed[rank], mean) or all_close(observed[rank], total):
        raise Diagnosis(
            "weights-not-gradients",
            saw=f"{saw}, as if the weights were reduced over the ranks.",
            means="What has to be averaged is parameter.grad, not the parameter.",
            look=where,
        )
    raise Diagnosis(
        "weights-changed",
        saw=f"{saw}.",
        means="Only the optimizer's step may change weights; here they must stay as they are.",
        look=where,
    )


def fail_for_gradients(found: Verdict, world_size: int, where: str) -> NoReturn:
    names = {
        "sum": ("summed-not-averaged", f"Added up but not divided: every step is {world_size} times too long."),
        "local": ("not-reduced", "Each rank trains alone; from the first step on their weights differ."),
        "rank 0": ("broadcast-not-averaged", "The other ranks' samples are computed and thrown away."),
        "divided twice": ("divided-twice", "ReduceOp.AVG has divided already, or the division is there twice."),
        "only divided": ("only-divided", "Divided, but never added up: each rank still trains alone."),
        "maximum": ("maximum-not-mean", "ReduceOp.MAX takes the largest number; a mean is SUM divided by W."),
        "world size": (
            "world-size-hard-coded",
            f"{found.number} is written into the code; ask dist.get_world_size(), which is {world_size} here.",
        ),
        "factor": ("wrong-factor", "A mean is the sum over the ranks divided by their number, nothing else."),
        "some parameters": ("some-parameters-left-out", "The other weights drift apart between the ranks."),
        "some ranks": ("ranks-disagree", "The ranks take different steps, and from then on are different models."),
        "other": ("wrong-gradients", "The step is not the one that a single process would take."),
    }
    name, means = names[found.kind]
    raise Diagnosis(name, found.saw, means, where)


@check("4.1", "trains as one process would on the whole batch")
def trains_with_ddp(ranks: Ranks) -> None:
    world_size = 2
    generator = fresh_generator()
    weights = [draw_weights(generator) for _ in range(world_size)]
    batches = [draw_batch(generator, 4 * world_size) for _ in range(2)]
    cap = int(torch.randint(5, 20, (), generator=generator)) + 0.5
    gpus = [3, 2]  # none is its rank
    inputs = {
        "weights": weights,
        "batches": [parts(batch, world_size) for batch in batches],
        "bucket_cap_mb": cap,
        "gpus": gpus,
    }
    where = look(ranks.code, "ddp_utils.py", "get_ddp_model", r"Parallel\(", r"\breturn\b")
    with retold(
        "device_ids",
        "device-ids-on-cpu",
        "device_ids names this process's GPU. On the CPU there is none: device_ids must be None.",
    ):
        reports = ranks.observe(train_with_ddp, world_size, inputs, timeout=LIMIT)
    expect(reports, {"type": str, "ddp": bool})
    for report in reports:
        judge_type(report, where)
    expect(
        reports,
        {
            "inside": str,
            "bucket_cap_mb": float,
            "gpu": (None, {"steps": [str], "device_ids": str}),
            "start": dict,
            "gradients": dict,
            "end": dict,
        },
    )
    judge_wrapper(reports[0], cap, where)
    for rank, report in enumerate(reports):
        judge_device(ranks, report["gpu"], rank, gpus[rank])
    judge_training(reports, weights, batches, where)


def judge_type(report: dict, where: str) -> None:
    if report["type"] == "NoneType":
        raise Diagnosis(
            "nothing-returned",
            saw="get_ddp_model() returned None.",
            means="The training loop needs the wrapped model.",
            look=where,
        )
    if report["type"] == "DataParallel":
        raise Diagnosis(
            "data-parallel",
            saw="get_ddp_model() returned a DataParallel, not a DistributedDataParallel.",
            means="DataParallel spreads a batch over the GPUs of one process; the ranks stay on their own.",
            look=where,
        )
    if not report["ddp"]:
        raise Diagnosis(
            "not-wrapped",
            saw=f"get_ddp_model() returned a {report['type']}, not a DistributedDataParallel.",
            means="backward() would average nothing: each rank would train a model of its own.",
            look=where,
        )


def judge_wrapper(report: dict, cap: float, where: str) -> None:
    """Is it around this model, with the bucket size that was asked for?"""
    if report["inside"] != "the model":
        raise Diagnosis(
            "wrapped-a-copy",
            saw=f"inside DistributedDataParallel there is {report['inside']}, not the model it was given.",
            means="Whoever still holds the model that was handed in would not see it trained.",
            look=where,
        )
    if abs(report["bucket_cap_mb"] - cap) > 0.01:
        raise Diagnosis(
            "bucket-cap-ignored" if report["bucket_cap_mb"] == 25 else "bucket-cap-wrong",
            saw=f"bucket_cap_mb={cap:g} was asked for; the buckets take {report['bucket_cap_mb']:g} MiB.",
            means="A sweep over bucket sizes would measure the same thing every time, or the wrong one.",
            look=where,
        )


def judge_device(ranks: Ranks, gpu: dict | None, rank: int, index: int) -> None:
    """On its device before it is wrapped, and wrapped for this device."""
    if gpu is None:
        return
    steps, device_ids = gpu["steps"], gpu["device_ids"]
    wrapped = steps.index("wrap") if "wrap" in steps else len(steps)
    before = [step for step in steps[:wrapped] if step != "no device"]
    after = [step for step in steps[wrapped + 1 :] if step != "no device"]
    moves = look(ranks.code, "ddp_utils.py", "get_ddp_model", r"\.to\(|\.cuda\(", r"Parallel\(")
    if not before:
        raise Diagnosis(
            "wrapped-before-on-device" if after else "not-on-device",
            saw=f"for device cuda:{index} the model was "
            + ("wrapped first and moved afterwards." if after else "wrapped without being moved there."),
            means="DDP sets up its buckets where the parameters are at that moment: they must be on the GPU.",
            look=moves,
        )
    if before[-1] not in (f"cuda:{index}", "cuda"):
        raise Diagnosis(
            "wrong-device",
            saw=f"rank {rank} was given cuda:{index}, but moved the model to {before[-1]}.",
            means="Ranks of one node would meet on the same GPU, or look for one that is not there.",
            look=moves,
        )
    if device_ids not in ("None", f"cuda:{index}"):
        raise Diagnosis(
            "wrong-device-ids",
            saw=f"rank {rank} was given cuda:{index}, but handed DDP the device_ids {device_ids}.",
            means="device_ids holds the one GPU of this process: the device, whose number need not be the rank.",
            look=look(ranks.code, "ddp_utils.py", "get_ddp_model", r"device_ids", r"Parallel\("),
        )


def judge_training(reports: list[dict], weights: Sequence[Tensors], batches: list, where: str) -> None:
    """Rank 0's weights at the start, the whole batch's gradients, the twin's weights at the end."""
    world_size = len(reports)
    start = [report["start"] for report in reports]
    expect_tensors(start, weights[0])
    if rank := next((r for r in range(world_size) if not all_close(start[r], weights[0])), 0):
        raise Diagnosis(
            "ranks-start-apart",
            saw=f"rank {rank} does not start with rank 0's weights: {example(start[rank], weights[0])}.",
            means="The ranks would average gradients of different models.",
            look=where,
        )
    if not all_close(start[0], weights[0]):
        raise Diagnosis(
            "weights-changed",
            saw=f"wrapping has changed rank 0's weights: {example(start[0], weights[0])}.",
            means="Rank 0's model must be what every rank starts from.",
            look=where,
        )
    mean = loss_and_gradients(weights[0], batches[0])[1]
    local = [loss_and_gradients(weights[0], own)[1] for own in parts(batches[0], world_size)]
    gradients = [report["gradients"] for report in reports]
    expect_tensors(gradients, mean)
    found = verdict(gradients, mean, local)
    if found.kind != "mean":
        names = {
            "divided twice": ("averaged-twice", "DDP has averaged already; nothing must be divided after it."),
            "local": ("gradients-not-synchronised", "The wrapper is there, but its all-reduce does not run."),
        }
        name, means = names.get(
            found.kind, ("wrong-gradients", "The step is not the one that a single process would take.")
        )
        raise Diagnosis(name, found.saw, means, where)
    twin = weights_after_steps(weights[0], batches)[-1]
    end = [report["end"] for report in reports]
    expect_tensors(end, twin)
    for rank in range(world_size):
        if not all_close(end[rank], twin):
            raise Diagnosis(
                "updates-differ",
                saw=f"after 2 steps on rank {rank} {example(end[rank], twin)}, as one process has.",
                means="Training on several ranks must be training on one, only faster.",
                look=where,
            )
