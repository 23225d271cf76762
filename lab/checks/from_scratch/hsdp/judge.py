"""Judges MyHSDP: which ranks talk to which, in bytes, what a rank keeps, and the numbers that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.look_around import first_of
from lab.checks.common.report import expect, expect_as_many
from lab.checks.common.syntax import rebound
from lab.checks.common.tensors import close, example, factor_between
from lab.checks.common.tiny import Descent, one_thread
from lab.checks.from_scratch.hsdp.judge_groups import judge_agreement, judge_groups
from lab.checks.from_scratch.hsdp.judge_kept import judge_freed, judge_memory
from lab.checks.from_scratch.hsdp.judge_traffic import judge_begun, judge_gather, judge_reduce, judge_waited
from lab.checks.from_scratch.hsdp.net import (
    BATCH,
    INPUTS,
    PER_NODE,
    RANKS,
    RATE,
    STEPS,
    build,
    draw_weights,
    loss_of,
)
from lab.checks.from_scratch.hsdp.places import position_at
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

CALLS = [{"name": str, "bytes": int, "ranks": [int]}]
GROUPS = {"one node": [[int]], "nodes of one": [[int]], "groups": [[int]]}
START = {
    "start": [float],
    "kept": int,
    "whole at start": [int],
}
STEPPED = {
    "gathered": [float],
    "gather calls": CALLS,
    "reduce calls": CALLS,
    "not waited": [int],
    "begun early": [int],
    "gradient": (None, [float]),
    "alive": int,
    "largest": int,
    "whole after": [int],
    "second gradient": (None, [float]),
    "gathered again": [float],
}
POSITION = "Which part it is says its position in the node, dist.get_rank(shard_group): rank 2 of all is 0 there."
PAIRS = ("whole at start", "whole after", "not waited")


@dataclass(frozen=True)
class Drawn:
    """weights[rank], of which rank 0's count; inputs[rank][step]."""

    weights: list[list[Tensor]]
    inputs: list[list[Tensor]]


@dataclass(frozen=True)
class Twin:
    """One process: weights before each step, and its gradients; own[rank] are those of one rank in the first."""

    weights: list[Tensor]
    gradients: list[Tensor]
    own: list[Tensor]


def draw(generator: torch.Generator) -> Drawn:
    weights = [draw_weights(generator) for _ in range(RANKS)]
    inputs = [[torch.randn(BATCH, INPUTS, generator=generator) for _ in range(STEPS)] for _ in range(RANKS)]
    return Drawn(weights, inputs)


def sent(drawn: Drawn) -> dict[str, Any]:
    return {"weights": drawn.weights, "inputs": drawn.inputs}


def flat(tensors: Any) -> Tensor:
    return torch.cat([one.detach().flatten() for one in tensors])


def padded(whole: Tensor) -> Tensor:
    return torch.nn.functional.pad(whole, (0, -len(whole) % PER_NODE))


def twin(drawn: Drawn) -> Twin:
    """What one process computes: the mean over all ranks' inputs."""
    with one_thread():
        net = build(drawn.weights[0])
        optimizer = Descent(net.parameters(), RATE)
        before: list[Tensor] = []
        gradients: list[Tensor] = []
        own: list[Tensor] = []
        for step in range(STEPS):
            before.append(flat(net.parameters()))
            ranks = []
            for rank in range(RANKS):
                optimizer.zero_grad()
                loss_of(net, drawn.inputs[rank][step], rank).backward()
                ranks.append(flat([torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]))
            own = own or ranks
            gradients.append(torch.stack(ranks).mean(dim=0))
            for parameter, part in zip(
                net.parameters(), gradients[-1].split([p.numel() for p in net.parameters()]), strict=True
            ):
                parameter.grad = part.view_as(parameter)
            optimizer.step()
        return Twin(before, gradients, own)


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    judge_agreement(look, reports)
    expect(reports, GROUPS)
    judge_groups(look, reports)
    expect(reports, START)
    right = twin(drawn)
    for rank, report in enumerate(reports):
        judge_shard(look, rank, report, drawn)
    judge_filled(look.into("MyHSDP.gather"), reports, right)
    expect(reports, STEPPED)
    expect_as_many([report[key] for report in reports for key in PAIRS], 2)
    judge_gather(look.into("MyHSDP.gather"), [report["gather calls"] for report in reports])
    judge_waited(look, [report["not waited"] for report in reports])
    compared("parameters after gather()", [report["gathered"] for report in reports], right.weights[0].tolist())
    judge_filled(look.into("MyHSDP.gather"), reports, right, whole=True)
    length = len(padded(right.weights[0])) // PER_NODE
    judge_reduce(look.into("MyHSDP.reduce"), [report["reduce calls"] for report in reports], 4 * length)
    judge_begun(look, [report["begun early"] for report in reports])
    parts = padded(right.gradients[0]).chunk(PER_NODE)
    compared(
        "gradient of the shard",
        [report["gradient"] for report in reports],
        [parts[rank % PER_NODE].tolist() for rank in range(RANKS)],
    )
    for rank, report in enumerate(reports):
        judge_gradient(look.into("MyHSDP.reduce"), rank, report["gradient"], right)
    for rank, report in enumerate(reports):
        judge_freed(look.into("MyHSDP.free"), rank, report, length)
    for rank, report in enumerate(reports):
        judge_gathered_again(look.into("MyHSDP.gather"), rank, report, right)
    for rank, report in enumerate(reports):
        judge_memory(look, rank, report, length)
    for rank, report in enumerate(reports):
        judge_second(look, rank, report, right)


def judge_filled(look: Look, reports: Sequence[Any], right: Twin, *, whole: bool = False) -> None:
    """After gather() the parameters are there; with `whole` those of one process."""
    expect(reports, {"gathered": [float]})
    for rank, report in enumerate(reports):
        found = torch.tensor(report["gathered"])
        if (whole or len(found) != len(right.weights[0])) and not close(found, right.weights[0]):
            raise Diagnosis(
                "wrong-parameters" if whole else "parameters-not-filled",
                saw=f"after gather() rank {rank} has other parameters than one process: "
                + off(found, right.weights[0]),
                means="The shards lie in the order of their positions; each parameter is its part, in its shape."
                if whole
                else "To assign to a name fills no parameter: the part goes into parameter.data of each.",
                look=first_of(look, rebound) or look(r"\.data\b", r"split|view"),
            )


def off(found: Tensor, wanted: Tensor) -> str:
    if found.shape != wanted.shape:
        return f"{len(found)} numbers instead of {len(wanted)}."
    return "one " + example({"": found}, {"": wanted}).strip() + "."


def judge_shard(look: Look, rank: int, report: dict[str, Any], drawn: Drawn) -> None:
    place = look.into("MyHSDP.__init__")
    whole = padded(flat(drawn.weights[0]))
    parts = whole.chunk(PER_NODE)
    shard, wanted = torch.tensor(report["start"]), parts[rank % PER_NODE]
    if not len(shard) and rank >= PER_NODE:
        raise Diagnosis(
            "rank-as-position",
            saw=f"rank {rank} has no number of the {len(whole)}: its part begins behind their end.",
            means=POSITION,
            look=place(r"get_rank\((group=None)?\)", r"get_rank", r"self\.shard = "),
        )
    if len(shard) != len(wanted):
        over_all = len(shard) == -(-len(whole) // RANKS)
        raise Diagnosis(
            "sharded-over-all-ranks" if over_all else "wrong-shard-size",
            saw=f"the shard of rank {rank} has {len(shard)} numbers, of {len(whole)} with padding.",
            means=f"A node has all of them between its {PER_NODE} ranks: its share is 1/{PER_NODE}.",
            look=place(r"chunk|split|clone", r"get_world_size"),
        )
    if report["kept"] > len(shard):
        raise Diagnosis(
            "shard-is-a-view",
            saw=f"the shard of rank {rank} has {len(shard)} numbers, and keeps {report['kept']} in memory.",
            means="A part of a tensor is a view, which keeps all of it alive: the shard is a copy of it.",
            look=place(r"self\.shard = ", r"chunk|Parameter"),
        )
    if close(shard, wanted):
        return
    if any(close(shard, part) for part in parts):
        raise Diagnosis(
            "wrong-part",
            saw=f"rank {rank} has the part of another position.",
            means="Which part it is depends on its position in the shard group, not on its rank in the world.",
            look=position_at(place) or place(r"chunk|split", r"get_rank"),
        )
    own = padded(flat(drawn.weights[rank])).chunk(PER_NODE)[rank % PER_NODE]
    raise Diagnosis(
        "ranks-start-differently" if close(shard, own) else "wrong-shard",
        saw=f"the shard of rank {rank} is not that of rank 0's parameters: {off(shard, wanted)}",
        means="All four ranks train one model: rank 0's, before it is cut.",
        look=place(r"broadcast", r"flat"),
    )


def judge_gradient(look: Look, rank: int, found: Any, right: Twin) -> None:
    place = look(r"/|\.div", r"\.grad =", r"reduce")
    wanted = padded(right.gradients[0]).chunk(PER_NODE)[rank % PER_NODE]
    if found is None:
        raise Diagnosis(
            "no-gradient",
            saw=f"after reduce() the shard of rank {rank} had no gradient.",
            means="The optimizer trains self.shard: what it needs is self.shard.grad.",
            look=look(r"\.grad =", r"all_reduce"),
        )
    gradient = torch.tensor(found)
    if close(gradient, wanted):
        return
    saw = f"the gradient on rank {rank} is not that of one process: {off(gradient, wanted)}"
    factor = factor_between({"": gradient}, {"": wanted}) if gradient.shape == wanted.shape else None
    if factor is not None:
        for times, name, means in (
            (RANKS, "not-averaged", "It is the sum over all ranks: the loss is a mean over all of their images."),
            (
                RANKS / PER_NODE,
                "divided-by-one-group",
                "It was divided by one group's ranks; the mean is over all 4.",
            ),
        ):
            if abs(factor - times) < 1e-3:
                raise Diagnosis(name, saw=f"{saw[:-1]}, {times:g} times as much.", means=means, look=place)
        raise Diagnosis(
            "wrong-scale",
            saw=f"{saw[:-1]}, {factor:.4g} times as much.",
            means="The mean over all ranks: the two sums together are one over all, which is divided once.",
            look=place,
        )
    node = rank - rank % PER_NODE
    own = padded(torch.stack(right.own[node : node + PER_NODE]).mean(dim=0)).chunk(PER_NODE)[rank % PER_NODE]
    if gradient.shape == own.shape and factor_between({"": gradient}, {"": own}) is not None:
        raise Diagnosis(
            "other-nodes-left-out",
            saw=saw,
            means="It is made of this node's gradients only: take what the all-reduce between nodes has made.",
            look=look(r"all_reduce", r"\.grad ="),
        )
    raise Diagnosis(
        "wrong-gradient",
        saw=saw,
        means="Sum inside of the node first, each rank its part; then the same part over the nodes.",
        look=look(r"scatter", r"reduce"),
    )


def judge_gathered_again(look: Look, rank: int, report: dict[str, Any], right: Twin) -> None:
    found = torch.tensor(report["gathered again"])
    if not close(found, right.weights[1]):
        raise Diagnosis(
            "stale-parameters",
            saw=f"in the second step rank {rank} gathers other parameters: {off(found, right.weights[1])}",
            means="The optimizer has changed the shards: each gather() begins with them as they are now.",
            look=look.under(r"gather\w*\(") or look(r"gather", r"if "),
        )


def judge_second(look: Look, rank: int, report: dict[str, Any], right: Twin) -> None:
    wanted = padded(right.gradients[1]).chunk(PER_NODE)[rank % PER_NODE]
    gradient = report["second gradient"]
    if gradient is None or not close(torch.tensor(gradient), wanted):
        raise Diagnosis(
            "gradients-add-up",
            saw=f"in the second step the gradient on rank {rank} is not that of one process.",
            means="Each step has its own gradient: what the step before has left must not be added.",
            look=look.into("MyHSDP.reduce")(r"\.grad \+?=", r"grad"),
        )
