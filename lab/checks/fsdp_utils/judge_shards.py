"""Judges what get_fsdp_model() returns: what is sharded, in which order, and what each rank holds of it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lab.base.source import searchable
from lab.base.words import one_line
from lab.checks.common.judge_left import judge_swallowed
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import for_around
from lab.checks.common.look_values import made_of_one
from lab.checks.common.report import expect, expect_returned
from lab.checks.common.tensors import Tensors, expect_texts
from lab.checks.fsdp_utils.judge_start import judge_rest, judge_start
from lab.checks.fsdp_utils.placement import WHOLE, outer_first
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

MESH_SIZE = "mesh-of-other-size"
EVERY_RANK = "The mesh holds every rank of the job: ask dist.get_world_size() for its size."
FSDP1 = "That is the first FSDP, which get_fsdp1_model shows; here it is fully_shard."

BLOCKS = ["blocks.0", "blocks.1"]
SHARDS = "shards blocks, then the model"

# What sends weights, and what PyTorch says when it is asked to send what is sharded.
SENDS = r"broadcast|reduce|scatter|gather|load_state_dict|\bsend"
OF_SHARDS = r"sharding strategy registered|DTensor|[Ee]rror\(s\) in loading state_dict"

SHARDED = {
    "same": bool, "order": [str], "units": [str], "placements": dict, "start": dict, "frozen": [float],
    "trainable": [str], "error": str, "gpu": (None, {"steps": [str]}), "gathered": dict,
    "cpu": (None, {"steps": [str]}), "swallowed": {"broadcast": str, "fully_shard": str},
}  # fmt: skip


def judge_shards(look: Look, reports: Sequence[Any], weights: Sequence[Tensors]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        weights: those that each rank began with.
    """
    expect(reports, {"type": str, "module": bool})
    with part(SHARDS):
        judge_returned(look, reports)
    expect(reports, SHARDED)
    expect_texts([report["placements"] for report in reports])
    units = [sorted(unit or "the model" for unit in report["units"]) for report in reports]
    compared("sharded", units, [*BLOCKS, "the model"])
    with part(SHARDS):
        judge_units(look, reports[0], weights[0])
        judge_gathered(look, reports[0]["gathered"])
        for name, kind in reports[0]["swallowed"].items():
            judge_swallowed(look, kind, name)
    with part("starts from rank 0's model", after=[SHARDS]):
        judge_start(look, [report["start"] for report in reports], weights)
        judge_rest(look, reports)
        for report in reports:
            if report["gpu"]:
                judge_on_gpu(look, report["gpu"]["steps"], len(reports))
            if report["cpu"]:
                judge_on_cpu(look, report["cpu"]["steps"])


@contextmanager
def sent_after_sharding(look: Look) -> Iterator[None]:
    """Names what comes of weights that are sent when each rank has only its own rows of them left."""
    try:
        yield
    except Diagnosis as diagnosis:
        shards, sends = line_of(look(r"\bfully_shard\(")), line_of(diagnosis.look)
        odd = diagnosis.name == "different-sizes" or re.search(OF_SHARDS, searchable(diagnosis.saw))
        if odd and re.search(SENDS, searchable(diagnosis.look)) and 0 < shards < sends:
            raise Diagnosis(
                "sent-after-sharding",
                saw=f"below fully_shard, at line {sends}: {one_line(diagnosis.saw, 200)}",
                means="From there on each rank has other rows of a weight, not rank 0's: send first, then shard.",
                look=diagnosis.look,
            ) from None
        raise


def judge_returned(look: Look, reports: Sequence[Any]) -> None:
    """A model on every rank."""
    for report in reports:
        means = "The training loop needs the sharded model."
        expect_returned(look, report["type"], means, look(r"\breturn\b"))
        if not report["module"]:
            saw = f"get_fsdp_model() returned a {report['type']}."
            raise Diagnosis("not-a-model", saw=saw, means=means, look=look(r"\breturn\b"))


def judge_on_gpu(look: Look, steps: Sequence[str], world_size: int) -> None:
    """For device cuda:1: moved there before anything is sent, and a mesh of GPUs."""
    sent = steps.index("send") if "send" in steps else None
    moves = [step.removeprefix("to ") for step in steps if step.startswith("to ")]
    if sent is not None and not any(step.startswith("to ") for step in steps[:sent]):
        raise Diagnosis(
            "not-on-device",
            saw="for device cuda:1 the weights were sent "
            + ("before the model was moved there." if moves else "without the model being moved there."),
            means="nccl sends what is on GPUs: the model must be on its device before rank 0's weights are sent.",
            look=look(r"\.to\(|\.cuda\(", r"broadcast", r"fully_shard\("),
        )
    if wrong := next((move for move in moves if move not in ("cuda:1", "cuda")), ""):
        raise Diagnosis(
            "wrong-device",
            saw=f"for device cuda:1 the model was moved to {wrong}.",
            means="Ranks of one node would meet on the same GPU, or look for one that is not there.",
            look=look(r"\.to\(|\.cuda\("),
        )
    if "offload" in steps:
        raise Diagnosis(
            "parameters-offloaded",
            saw="for device cuda:1 fully_shard was called with offload_policy=CPUOffloadPolicy().",
            means="They would travel to the GPU and back in every step: the shards stay on `device`.",
            look=look.source_of("fully_shard", "offload_policy") or look(r"[Oo]ffload"),
        )
    if "keep" in steps:
        judge_gathered(look, {BLOCKS[1]: [BLOCKS[0]]}, "for device cuda:1, ")
    if mesh := next((step for step in steps if step.startswith("mesh ") and "cuda" not in step), ""):
        raise Diagnosis(
            "mesh-on-another-device",
            saw=f"for device cuda:1 the mesh was made of {mesh.split()[1]} devices.",
            means="A mesh of CPUs communicates with gloo, through the CPU's memory: the mesh is of device.type.",
            look=look.source_of("fully_shard", "mesh") or look(r"init_device_mesh|[Mm]esh\s*="),
        )
    sizes = [int(step.split()[2]) for step in steps if step.startswith("mesh ")]
    if other := next((size for size in sizes if size != world_size), 0):
        raise Diagnosis(
            MESH_SIZE,
            saw=f"for device cuda:1, in a machine with 8 GPUs, {world_size} ranks have a mesh of {other}.",
            means=EVERY_RANK,
            look=look.source_of("fully_shard", "mesh") or look(r"init_device_mesh|[Mm]esh\s*="),
        )


def judge_on_cpu(look: Look, steps: Sequence[str]) -> None:
    """For device cpu, in a machine with GPUs: they stay out of it."""
    if cuda := next((step for step in steps if "cuda" in step), ""):
        mesh = cuda.startswith("mesh")
        raise Diagnosis(
            "mesh-on-another-device" if mesh else "wrong-device",
            saw="for device cpu, in a machine with GPUs, "
            + ("the mesh was made of cuda devices." if mesh else f"the model was moved {cuda}."),
            means="`device` says where the model lives, whatever else the machine has: ask device.type.",
            look=look(r"is_available", r"[\"']cuda[\"']|\.cuda\(", r"init_device_mesh"),
        )


def judge_units(look: Look, report: dict[str, Any], weights: Tensors) -> None:
    """Is every block sharded, and the root after them?"""
    kind, units, placements = report["type"], report["units"], report["placements"]
    sharding = look(r"fully_shard\(", r"\breturn\b")
    if kind == "FullyShardedDataParallel":
        raise Diagnosis(
            "fsdp1-not-fsdp2",
            saw="get_fsdp_model() returned a FullyShardedDataParallel.",
            means=FSDP1,
            look=look(r"FullyShardedDataParallel", r"\breturn\b"),
        )
    if not units:
        raise Diagnosis(
            "not-sharded",
            saw=f"get_fsdp_model() returned a {kind} in which nothing is sharded.",
            means="Each rank would hold the whole model, and no gradient would be averaged.",
            look=sharding,
        )
    if not report["same"]:
        raise Diagnosis(
            "sharded-a-copy",
            saw=f"the {kind} that came back is not the model that was handed in.",
            means="fully_shard changes the model in place; a copy needs the memory a second time.",
            look=look(r"copy\(", r"\breturn\b"),
        )
    if wrong := outer_first(report["order"]):
        outer, inner = wrong
        raise Diagnosis(
            "outer-before-inner" if outer else "root-before-blocks",
            saw=f"fully_shard was called for {outer or 'the model'} first, and then for {inner}.",
            means=f"{f'model.{outer}' if outer else 'The root'} takes every parameter that nobody has taken yet, "
            f"so nothing is left for {'what is in it' if outer else 'the blocks'}.",
            look=sharding,
        )
    inside = [b for b in BLOCKS if not any(unit == b or unit.startswith(f"{b}.") for unit in units)]
    if len(inside) == len(BLOCKS) and "" in units:
        raise Diagnosis(
            "only-root-sharded",
            saw=f"only the model as a whole is sharded; its {len(BLOCKS)} blocks are not units of their own.",
            means="Every forward pass would gather all parameters at once: no memory is saved when it counts.",
            look=sharding,
        )
    if inside:
        raise Diagnosis(
            "block-left-out",
            saw=f"model.{inside[0]} is no unit of its own; units: {', '.join(u or 'the model' for u in units)}.",
            means="Every one of model.blocks must be a unit that is gathered just before it is needed.",
            look=look(r"isinstance\(", r"blocks", r"fully_shard\("),
        )
    if layers := [b for b in BLOCKS if b not in units]:
        raise Diagnosis(
            "layers-not-blocks",
            saw=f"model.{layers[0]} is no unit, only what is in it; units: "
            f"{', '.join(unit or 'the model' for unit in units)}.",
            means="Each layer is gathered for itself: more and smaller collectives than one for each block.",
            look=for_around(look, look(r"^fully_shard\((?!model\b)", r"fully_shard\(")),
        )
    whole = [name for name, placement in placements.items() if placement == WHOLE]
    if "" not in units:
        raise Diagnosis(
            "root-not-sharded",
            saw=f"the blocks are sharded, the model itself is not: {', '.join(whole)} are whole on every rank.",
            means="Their gradients are not averaged, so the ranks drift apart.",
            look=look(r"\breturn\b", r"fully_shard\("),
        )
    odd = [name for name in weights if placements.get(name) != "Shard(0)"]
    if odd:
        raise Diagnosis(
            "replicated" if placements.get(odd[0]) != WHOLE else "not-sharded",
            saw=f"{odd[0]} is placed as {placements.get(odd[0])}, not as Shard(0).",
            means="Every rank must keep only its rows of each parameter; nothing else saves memory.",
            look=look(r"placement|ignored")
            if line_of(look(r"placement|ignored"))
            else made_of_one(look) or look.source_of("fully_shard", "mesh") or look(r"mesh\s*=", r"fully_shard\("),
        )


def judge_gathered(look: Look, gathered: Any, setting: str = "") -> None:
    """Is each block gathered when it computes, and freed afterwards?

    Args:
        gathered: block -> the others whose parameters are whole while it computes.
    """
    expect([list(gathered.values())], [[str]])
    early = [name for name in gathered.get(BLOCKS[0], ()) if name != BLOCKS[0]]
    if early:
        raise Diagnosis(
            "blocks-in-one-group",
            saw=f"{setting}while model.{BLOCKS[0]} computes, {early[0]} is whole in memory already.",
            means="Modules of one call are gathered all at once, so nothing is saved: a call for each block.",
            look=look(r"fully_shard\(\s*(list\(|\[|tuple\(|\*|blocks)", r"blocks", r"fully_shard\("),
        )
    kept = [name for name in gathered.get(BLOCKS[1], ()) if name != BLOCKS[1]]
    if kept:
        raise Diagnosis(
            "blocks-stay-gathered",
            saw=f"{setting}while model.{BLOCKS[1]} computes, {kept[0]} is still whole in memory.",
            means="--shard full, the default, frees a block after its forward pass; --shard grad keeps it.",
            look=look.source_of("fully_shard", "reshard_after_forward", first=r"^(?!model$)")
            or look(r"reshard", r"unshard", r"fully_shard\("),
        )
