"""Checks of the first part of section 4: gradients averaged over the ranks, by hand and by DDP."""

import random
from collections.abc import Callable, Sequence

import torch

from lab.base.words import rank_list
from lab.checks.common.gradients import verdict
from lab.checks.common.look import Look
from lab.checks.common.report import expect
from lab.checks.common.tensors import Tensors, all_close, example, expect_tensors, retold
from lab.checks.common.tiny import (
    LIMIT,
    draw_batch,
    draw_weights,
    fresh_generator,
    loss_and_gradients,
    parts,
    weights_after_steps,
)
from lab.checks.ddp_utils.judge_average import fail_for_gradients, fail_for_weights, judge_second_model
from lab.checks.ddp_utils.observe import average, train_with_ddp
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis
from lab.ranks.reports import GroupResult


@check("4.0", "every rank ends up with the gradients of the whole batch")
def gradients_of_the_whole_batch(group: Group) -> None:
    # Three first: there nothing that is divided by 2 or 4 looks right, or divided twice.
    for judge in [start_average(group, world_size) for world_size in (3, 2)]:
        judge()


def start_average(group: Group, world_size: int) -> Callable[[], None]:
    """Start a group of ranks; what comes back judges it."""
    generator = fresh_generator()
    weights, batch = draw_weights(generator), draw_batch(generator, 4 * world_size)
    mean = loss_and_gradients(weights, batch)[1]
    local = [loss_and_gradients(weights, own)[1] for own in parts(batch, world_size)]
    # After the backward pass each rank's weights are moved apart: averaging those would show.
    moved = [
        {name: value + torch.randn(value.shape, generator=generator) for name, value in weights.items()}
        for _ in range(world_size)
    ]
    idle = random.randrange(world_size)
    local[idle]["classifier.bias"].zero_()
    mean["classifier.bias"] = torch.stack([own["classifier.bias"] for own in local]).mean(dim=0)
    inputs = {"weights": weights, "parts": parts(batch, world_size), "moved": moved, "idle": idle}
    report = group.start(Order(average, world_size, inputs, timeout=LIMIT))
    return lambda: judge_average(group, report, moved, mean, local, idle)


def judge_average(
    group: Group,
    report: Callable[[], GroupResult],
    moved: Sequence[Tensors],
    mean: Tensors,
    local: Sequence[Tensors],
    idle: int,
) -> None:
    """Args: the weights on each rank, the right gradients, each rank's own, and the rank that has a part of 0."""
    world_size, weights = len(moved), moved[0]
    look = Look(group.code, "ddp_utils.py", "average_gradients")
    with retold(
        "NoneType",
        "parameter-without-gradient",
        "A parameter that took no part in the forward pass has grad None: leave it out.",
    ):
        reports = group.values(report())
    expect(reports, {"weights": dict, "gradients": dict, "pending": int, "frozen": bool, "second": dict})
    if pending := max(report["pending"] for report in reports):
        raise Diagnosis(
            "not-waited-for",
            saw=f"{pending} collectives were started with async_op=True, and nobody waited for them.",
            means="What is in the gradients then depends on which comes first: the sum, or the line that uses it.",
            look=look(r"async_op", r"reduce"),
        )
    observed = [report["weights"] for report in reports]
    expect_tensors(observed, weights)
    if not all(all_close(observed[rank], moved[rank]) for rank in range(world_size)):
        fail_for_weights(observed, moved, look(r"\.data\b|copy_\(|\bp\b\s*[-+*/]?=", r"reduce|gather|broadcast"))

    gradients = [report["gradients"] for report in reports]
    gone = [name for name in mean if any(name not in grads for grads in gradients)]
    if gone:
        raise Diagnosis(
            "gradients-gone",
            saw=f"after average_gradients() there is no gradient any more for {', '.join(gone[:3])}"
            + (", ..." if len(gone) > 3 else "."),
            means="optimizer.step() leaves out parameters whose grad is None.",
            look=look(r"grad\s*=\s*None|zero_grad|\bdel\b", r"grad"),
        )
    expect_tensors(gradients, mean)
    found = verdict(gradients, mean, local)
    if found.kind != "mean":
        pattern = {
            "world size": rf"\b{found.number}\b",
            "some ranks": r"get_rank\(|\brank\b|\breduce\(",
            "some parameters": r"\breturn\b|break|\bif\b(?!.*None)",
        }.get(
            found.kind,
            r"[/*]=|\bdiv|\bmul|[/*] " if found.kind in ("divided twice", "only divided", "factor") else r"(?!)",
        )
        fail_for_gradients(found, world_size, look(pattern, r"all_reduce|reduce|gather|broadcast"))
    if any(report["frozen"] for report in reports):
        raise Diagnosis(
            "frozen-given-a-gradient",
            saw="a parameter with requires_grad=False, which had no gradient, has one after average_gradients().",
            means="The optimizer would change it, by weight decay alone: what is frozen must stay frozen.",
            look=look(r"zeros|new_|\.grad\s*=[^=]", r"grad"),
        )
    judge_second_model([report["second"] for report in reports], mean, idle, look)


NOT_ALL_RANKS = "A gradient must be averaged over every rank: the default group has them all, so name no other."

PRETENDED = (None, {"steps": [str], "device_ids": str, "wrapped": bool, "exchanged": [str], "thawed": bool})


@check("4.1", "trains as one process would on the whole batch")
def trains_with_ddp(group: Group) -> None:
    world_size = 3
    generator = fresh_generator()
    weights = [draw_weights(generator) for _ in range(world_size)]
    batches = [draw_batch(generator, 4 * world_size) for _ in range(2)]
    cap = int(torch.randint(5, 20, (), generator=generator)) + 0.5
    gpus = [3, 2, 0]  # none is its rank
    inputs = {
        "weights": weights,
        "batches": [parts(batch, world_size) for batch in batches],
        "bucket_cap_mb": cap,
        "gpus": gpus,
    }
    look = Look(group.code, "ddp_utils.py", "get_ddp_model")
    where = look(r"Parallel\(", r"\breturn\b")
    with (
        retold(
            "device_ids",
            "device-ids-on-cpu",
            "device_ids names this process's GPU. On the CPU there is none: device_ids must be None.",
        ),
        retold(
            "_verify_params_across_processes|nvalid process group",
            "not-all-ranks",
            NOT_ALL_RANKS,
            saw=f"{{rank}} of {world_size} is not in the process group that was handed to DDP.",
        ),
    ):
        reports = group.observe(Order(train_with_ddp, world_size, inputs, timeout=LIMIT))
    expect(reports, {"type": str, "ddp": bool})
    for report in reports:
        judge_type(report, where)
    expect(reports, {"inside": str, "bucket_cap_mb": float, "types": [str]})
    if reports[0]["types"] != ["float32"]:
        raise Diagnosis(
            "parameters-not-fp32",
            saw=f"the parameters are {', '.join(reports[0]['types'])} after get_ddp_model(); they were float32.",
            means="In low precision small updates are rounded away; autocast computes in it, parameters stay.",
            look=look(r"float|half|double", r"\.to\("),
        )
    expect(
        reports,
        {
            "gpu": PRETENDED,
            "cpu": PRETENDED,
            "alone": PRETENDED,
            "group": [int],
            "start": dict,
            "gradients": dict,
            "end": dict,
        },
    )
    judge_wrapper(reports[0], cap, where)
    for rank, report in enumerate(reports):
        judge_device(look, report["gpu"], rank, gpus[rank])
    for rank, report in enumerate(reports):
        judge_group(look, report["group"], rank, world_size)
        judge_network(look, report)
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
            saw="get_ddp_model() returned "
            + ("the bare model" if report["type"] == "TinyNet" else f"a {report['type']}")
            + ", not a DistributedDataParallel.",
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
            means="A sweep over bucket sizes would measure the same thing every time."
            if report["bucket_cap_mb"] == 25
            else "The argument is in MiB, and so is DDP's: hand it on as it is.",
            look=where,
        )


def judge_device(look: Look, gpu: dict | None, rank: int, index: int) -> None:
    """On its device before it is wrapped, and wrapped for this device."""
    if gpu is None:
        return
    steps, device_ids = gpu["steps"], gpu["device_ids"]
    wrapped = steps.index("wrap") if "wrap" in steps else len(steps)
    before = [step for step in steps[:wrapped] if step != "no device"]
    after = [step for step in steps[wrapped + 1 :] if step != "no device"]
    moves = look(r"\.to\(|\.cuda\(", r"Parallel\(")
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
            look=look(r"device_ids", r"Parallel\("),
        )


def judge_group(look: Look, members: list[int], rank: int, world_size: int) -> None:
    if sorted(members) != list(range(world_size)):
        raise Diagnosis(
            "not-all-ranks",
            saw=f"rank {rank} of {world_size} averages its gradients with {rank_list(members)} only.",
            means=NOT_ALL_RANKS,
            look=look(r"new_group", r"process_group", r"Parallel\("),
        )


def judge_network(look: Look, report: dict) -> None:
    """It is wrapped as it is, on a single rank too."""
    for pretended in filter(None, (report["gpu"], report["cpu"])):
        if exchanged := pretended["exchanged"]:
            raise Diagnosis(
                "layers-exchanged",
                saw=f"a network with a BatchNorm has a {exchanged[0]} in its place after get_ddp_model().",
                means="It is another network than one device trains, and SyncBatchNorm runs on GPUs only.",
                look=look(r"SyncBatchNorm|sync_batchnorm", r"Parallel\("),
            )
        if pretended["thawed"]:
            raise Diagnosis(
                "unfrozen",
                saw="a parameter with requires_grad=False can be trained after get_ddp_model().",
                means="What was frozen on purpose would be changed: wrapping must leave that as it is.",
                look=look(r"requires_grad", r"Parallel\("),
            )
    if report["alone"] and not report["alone"]["wrapped"]:
        raise Diagnosis(
            "not-wrapped",
            saw="in a world of one rank get_ddp_model() returned the bare model.",
            means="The program asked for DDP. On one rank it must still be DDP, or the sweep compares two things.",
            look=look(r"world_size", r"\breturn\b"),
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
        raise Diagnosis(name, saw=found.saw, means=means, look=where)
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
