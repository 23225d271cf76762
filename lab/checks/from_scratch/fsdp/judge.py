"""Judges MyFSDP: what a rank keeps, gathers and frees, and the model that comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_values import late_bound
from lab.checks.common.report import expect, numbers
from lab.checks.common.tensors import close, example, factor_between
from lab.checks.common.tiny import one_thread
from lab.checks.from_scratch.fsdp.judge_calls import UNITS, judge_calls, judge_gradients, judge_kept, judge_waits
from lab.checks.from_scratch.fsdp.judge_precision import judge_low_precision
from lab.checks.from_scratch.fsdp.judge_shards import judge_filled, judge_shards, judge_units, zeros_in_front
from lab.checks.from_scratch.fsdp.net import (
    BLOCKS,
    WIDTH,
    Net,
    block_bytes,
    draw_weights,
    loss_of,
)
from lab.checks.from_scratch.fsdp.observe import RATE
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import compared

CALLS = [{"name": str, "bytes": int}]
SCATTERS = ("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single")
STATES = ("start", "after one", "after two")
REPORT = {
    **dict.fromkeys(STATES, dict),
    **dict.fromkeys(("forward", "backward", "finish"), CALLS),
    "elements": [int],
    "kept": [int],
    "order": [int],
    "in no unit": [str],
    "root hooks": [int],
    "waited": int,
    "waited in reduce": int,
    "kept in pending": [int],
    "not in pending": int,
    "changed under way": [int],
    "unwaited": [int],
    "not filled": int,
    "forward peak": int,
    "peak": int,
    "evaluated": Tensor,
    "gradients": [(None, [object])],
    "bf16 seen": [str],
    "bf16 scattered": int,
    "bf16 shards": [str],
    "bf16 gradients": [str],
}


@dataclass(frozen=True)
class Drawn:
    """weights[rank]; inputs[rank]: the first step's [B, 31], and the two micro-batches of the second."""

    weights: list[dict[str, Tensor]]
    inputs: list[tuple[Tensor, list[Tensor]]]


def draw(generator: torch.Generator, world_size: int) -> Drawn:
    weights = [draw_weights(generator) for _ in range(world_size)]
    batches = [[torch.randn(2, WIDTH, generator=generator) for _ in range(3)] for _ in range(world_size)]
    return Drawn(weights, [(first, rest) for first, *rest in batches])


def sent(drawn: Drawn) -> dict[str, Any]:
    return {"weights": drawn.weights, "inputs": drawn.inputs}


def twin(drawn: Drawn) -> tuple[list[dict[str, Tensor]], Tensor]:
    """One process's weights after each step, and its output for rank 0's first inputs after both."""
    with one_thread():
        net = Net(drawn.weights[0])
        after = []
        ranks = len(drawn.inputs)
        for parts in (
            [first for first, _ in drawn.inputs],
            [part for _, rest in drawn.inputs for part in rest],
        ):
            net.zero_grad()
            for part in parts:
                (loss_of(net(part)) / ranks).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= RATE * parameter.grad  # type: ignore[operator, misc]
            after.append({name: value.clone() for name, value in net.state_dict().items()})
        with torch.no_grad():
            return after, net(drawn.inputs[0][0])


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    if isinstance(reports[0], dict) and "gathered" in reports[0]:
        expect([reports[0]["gathered"]], [int])
        raise Diagnosis(
            "hooks-share-a-unit",
            saw="when block 0 was to be computed, the unit of block "
            f"{numbers(reports[0]['gathered'][:1])} had been gathered in its place.",
            means="A function made in a loop sees the loop's last value when it is called: hand on the method "
            "itself, unit.before_forward.",
            look=late_bound(look) or look(r"lambda", r"partial|hook"),
        )
    expect(reports, REPORT)
    like = drawn.weights[0]
    judge_units(look, reports)
    judge_filled(look, reports)
    judge_waits(look, reports)
    for report in reports:
        for state in STATES:
            if not all(isinstance(value, Tensor) for value in report[state].values()):
                raise unusable_report("a state dict holds what is no tensor")
    judge_start(look, [report["start"] for report in reports], like)
    ranks = len(reports)
    for rank, report in enumerate(reports):
        judge_shards(look, rank, report["elements"], sum(p.numel() for p in Net().parameters()), ranks)
        if sum(report["kept"]) > sum(report["elements"]) + UNITS * ranks:
            raise Diagnosis(
                "shard-is-a-view",
                saw=f"the shards of rank {rank} have {sum(report['elements'])} numbers, and keep "
                f"{sum(report['kept'])} in memory.",
                means="A part of a tensor is a view, which keeps all of it alive: the shard is a copy of it.",
                look=look.into("Unit.__init__")(r"self\.shard = "),
            )
        judge_calls(look, rank, report, ranks)
        judge_gradients(look, rank, report)
    after, output = twin(drawn)
    for name, wanted in zip(STATES[1:], after, strict=True):
        judge_weights(look, [report[name] for report in reports], wanted, like, name)
    for rank, report in enumerate(reports):
        judge_kept(look, rank, report)
        judge_memory(look, report)
    if not close(reports[0]["evaluated"], output):
        raise Diagnosis(
            "stale-evaluation",
            saw="a forward pass without gradients, after two steps, gives other numbers than one process.",
            means="Each forward pass gathers the shards as they are now.",
            look=look.into("Unit.fill")(r"gather"),
        )
    judge_low_precision(look, reports)


def judge_start(look: Look, states: Sequence[dict[str, Tensor]], like: dict[str, Tensor]) -> None:
    for rank, state in enumerate(states):
        wrong = [name for name in like if name not in state or state[name].shape != like[name].shape]
        if wrong or state.keys() != like.keys():
            name = wrong[0] if wrong else next(name for name in state if name not in like)
            raise Diagnosis(
                "other-state-dict",
                saw=f"full_state_dict() of rank {rank} is not that of the model: {name} differs.",
                means="A single process must be able to load it: each parameter by its name, in its shape.",
                look=look.into("MyFSDP.__init__")(r"_parameters", r"Unit\("),
            )
        wrong = [name for name in like if not close(state[name], like[name])]
        if wrong and zeros_in_front(state, like, len(states)):
            raise Diagnosis(
                "zeros-in-front",
                saw=f"{wrong[0]} of rank {rank} has moved on by the zeros that are in front of it.",
                means="views() takes the parameters from the first number on: zeros follow behind the last one.",
                look=look.into("Unit.__init__")(r"\bpad\(", r"cat\(", r"zeros", last=True),
            )
        block, before = (
            torch.cat([own[name].flatten() for name in like if name.startswith("blocks.0.")])
            for own in (state, like)
        )
        each = -(-len(block) // len(states))
        if wrong and not rank and not close(block[each : 2 * each], before[each : 2 * each]):
            saw = f"{wrong[0]} of rank 0 is not what it was before MyFSDP was made."
            if torch.equal(block[:each], block[each : 2 * each]):
                raise Diagnosis(
                    "shard-broadcast",
                    saw=saw,
                    means="Every rank has rank 0's part: the whole is broadcast, and then each cuts its own.",
                    look=look.into("Unit.__init__")(r"broadcast"),
                )
            if not close(
                block[:each], before[:each]
            ):  # if there were no broadcast, rank 0's own part would be right
                raise Diagnosis(
                    "shards-out-of-order",
                    saw=saw,
                    means="An all-gather lays the shards one behind the other: rank r's is run r of the whole.",
                    look=look.into("Unit.__init__")(r"self\.shard = ", r"chunk"),
                )
        if wrong:
            raise Diagnosis(
                "not-broadcast",
                saw=f"{wrong[0]} of rank {rank} is not that of rank 0 after MyFSDP was made.",
                means="Shards of different models make no model: all get rank 0's parameters, and then cut.",
                look=look.into("Unit.__init__")(r"broadcast", r"chunk"),
            )


def factor_of_the_step(
    state: dict[str, Tensor], wanted: dict[str, Tensor], before: dict[str, Tensor]
) -> float | None:
    """How many times as far as they should all weights have moved; None where it is no such number."""
    if any(name not in state or state[name].shape != right.shape for name, right in wanted.items()):
        return None
    return factor_between(
        {name: state[name] - before[name] for name in wanted},
        {name: right - before[name] for name, right in wanted.items()},
    )


def divided(look: Look) -> str:
    """Where reduce() divides, or else what it gives to the reduce-scatter."""
    given = [look.source_of(name, "input", 1, like=r"/|div|mul|\*") for name in SCATTERS]
    return next(filter(None, given), "") or look(r"/|\*|\.(div|mul)|reduce")


def judge_weights(
    look: Look,
    states: Sequence[dict[str, Tensor]],
    wanted: dict[str, Tensor],
    before: dict[str, Tensor],
    when: str,
) -> None:
    compared(f"weights, {when}", states, wanted)
    for rank, state in enumerate(states):
        for name, right in wanted.items():
            if name in state and close(state[name], right):
                continue
            if name not in state or state[name].shape != right.shape:
                raise unusable_report(f"rank {rank} reported another state dict {when}")
            moved, should = state[name] - before[name], right - before[name]
            saw = f"{when} step(s) of SGD on rank {rank}, " + example({name: state[name]}, {name: right})
            for diagnosis, factor, means in (
                ("summed-not-averaged", len(states), "The sum over the ranks: divide by their number."),
                ("divided-twice", 1 / len(states), "It was divided by the number of ranks more than once."),
            ):
                if when == STATES[1] and close(moved, factor * should):
                    reduce = look.into("Unit.reduce")
                    given = [reduce.source_of(name, "input", 1) for name in SCATTERS if factor > 1]
                    place = next(filter(None, given), "") or reduce(r"/|reduce")
                    raise Diagnosis(diagnosis, saw=f"{saw}.", means=means, look=place)
            times = factor_of_the_step(state, wanted, before)
            if when == STATES[1] and times is not None:
                raise Diagnosis(
                    "divided-by-another-number",
                    saw=f"{saw}: {times:.3g} times the step.",
                    means=f"The mean over the ranks: the gradient is divided by their number, {len(states)} here.",
                    look=divided(look.into("Unit.reduce")),
                )
            raise Diagnosis(
                "wrong-weights",
                saw=f"{saw}.",
                means="The shards must be trained as one process trains the whole, with micro-batches too.",
                look=look.into("Unit.reduce")(r"reduce"),
            )


def not_freed(look: Look) -> bool:
    """Whether free() is called and gives nothing back."""
    return "free" in look(r"free") and "resize_" not in look.into("Unit.free")(r"resize_")


def judge_memory(look: Look, report: dict[str, Any]) -> None:
    """What is alive beside the shards: one block whole and its gradient, not all of them."""
    blocks, block = BLOCKS * block_bytes(), block_bytes()
    if report["forward peak"] > 4 * block:
        raise Diagnosis(
            "not-freed-after-forward",
            saw=f"{report['forward peak']} bytes lived in the forward pass; all {BLOCKS} blocks have {blocks}.",
            means="Blocks that have been computed stay whole: free them after their forward pass.",
            look=look.into("Unit.free")(r"None|del ") if not_freed(look) else look(r"free", r"forward_hook"),
        )
    limit = 6 * block + blocks // 2
    if report["order"] != sorted(report["order"]):
        order = ", ".join(str(block) if block < BLOCKS else "what is left" for block in report["order"])
        raise Diagnosis(
            "units-in-other-order",
            saw=f"{report['peak']} bytes were alive in the step, and self.units are those of blocks {order}.",
            means="From the first block to the last, then what is left: __init__ takes `earlier` and forward() "
            "units[-1] from it.",
            look=look(r"reversed|\[::-1\]|insert\(", r"units.*module[^.]", r"for .*blocks", r"units"),
        )
    if report["peak"] > limit:
        raise Diagnosis(
            "not-freed-after-backward",
            saw=f"{report['peak']} bytes were alive in the step; a block has {block}, all have {blocks}.",
            means="Blocks, or their whole gradients, stay: free them once the gradient was handed on.",
            look=look.into("Gather.backward")(r"free", RETURN),
        )
