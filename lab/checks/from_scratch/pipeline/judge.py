"""Judges a pipeline of three ranks: its numbers, its messages, and the activations that are alive at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_values import kept_for, unreached
from lab.checks.common.report import expect, numbers, unusable
from lab.checks.common.tensors import all_close, close, example, factor_between
from lab.checks.common.tiny import one_thread
from lab.checks.from_scratch.pipeline.judge_losses import judge_losses
from lab.checks.from_scratch.pipeline.net import (
    BATCH,
    MICRO_BATCHES,
    RANKS,
    SHAPE,
    WIDTH,
    activations,
    draw_weights,
    of_sums,
    one_process,
    output_gradients_passed_on,
)
from lab.checks.from_scratch.pipeline.observe import SCHEDULES
from lab.checks.from_scratch.pipeline.schedule import BACKWARD, FORWARD, Action
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

REPORT = {
    name: {
        "returned": int,
        "losses": [float],
        "with graph": int,
        "waited in forward": int,
        "waited in backward": int,
        "gradients": dict,
        "peak": int,
        "held": int,
        "forwards": int,
        "buffers": int,
        "buffer made": int,
        "messages": [[object]],
        "collectives": [str],
    }
    for name in SCHEDULES
}
GPIPE, ONE_BY_ONE = SCHEDULES
BACK = "Stage.backward"


@dataclass(frozen=True)
class Drawn:
    """weights[stage]; inputs[micro] and targets[micro] [B, 4]."""

    weights: list[dict[str, Tensor]]
    inputs: list[Tensor]
    targets: list[Tensor]


def draw(generator: torch.Generator) -> Drawn:
    weights = draw_weights(generator)
    inputs, targets = (
        [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(MICRO_BATCHES)] for _ in range(2)
    )
    return Drawn(weights, inputs, targets)


def sent(drawn: Drawn) -> dict[str, Any]:
    return {"weights": drawn.weights, "inputs": drawn.inputs, "targets": drawn.targets}


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, REPORT)
    with one_thread():
        losses, right = one_process(drawn.weights, drawn.inputs, drawn.targets, range(MICRO_BATCHES))
        last = one_process(drawn.weights, drawn.inputs, drawn.targets, [MICRO_BATCHES - 1])[1]
        past = output_gradients_passed_on(drawn.weights, drawn.inputs, drawn.targets)
        sums = of_sums(drawn.weights, drawn.inputs)
    others = [dict(zip(("last", "past", "sums"), own, strict=True)) for own in zip(last, past, sums, strict=True)]
    for name in SCHEDULES:
        found = [report[name] for report in reports]
        for rank, one in enumerate(found):
            judge_messages(look, name, rank, one)
        compared(f"{name}: gradients", [one["gradients"] for one in found], right, each=True)
        judge_losses(look, name, found[-1], losses, right[-1])
        for rank, one in enumerate(found):
            judge_gradients(look, f"{name}, rank {rank}", one["gradients"], right[rank], others[rank])
        judge_kept(look, name, found)
    for rank, report in enumerate(reports):
        judge_memory(look, rank, report)


def judge_messages(look: Look, name: str, rank: int, one: dict[str, Any]) -> None:
    for message in one["messages"]:
        if [type(value) for value in message] != [str, int, int, bool]:
            unusable(f"rank {rank}", message)
    if one["collectives"]:
        raise Diagnosis(
            "collective-called",
            saw=f"{name}: rank {rank} called {one['collectives'][0].strip('_')}.",
            means="Each rank talks to its two neighbours only: it sends and receives.",
            look=look(r"dist\.(all_|broad|reduce|barrier|gather)", r"dist\."),
        )
    if one["buffers"] < one["forwards"] and name == GPIPE and rank:
        raise Diagnosis(
            "one-buffer-for-all",
            saw=f"{name}: rank {rank} received {one['forwards']} micro-batches into {one['buffers']} tensors.",
            means="Autograd needs each input again in its backward pass: what comes next must not overwrite it.",
            look=kept_for(look, "module", but="inputs|empty")
            or (look.line(one["buffer made"]) if one["buffer made"] else look(r"recv")),
        )
    if unwaited := [message[1] for message in one["messages"] if not message[3]]:
        raise Diagnosis(
            "not-waited",
            saw=f"{name}: rank {rank} did not wait() for {len(unwaited)} of its messages.",
            means="Until its wait() nobody knows whether a message has gone, and its tensor must not change.",
            look=look(r"isend") if rank + 1 in unwaited else look.into(BACK)(r"isend"),
        )
    sends = [message[1] for message in one["messages"] if message[0] == "send"]
    wanted = [rank + 1 if kind == FORWARD else rank - 1 for kind, _ in expected(name, rank)]
    if sends != [peer for peer in wanted if 0 <= peer < RANKS]:
        raise Diagnosis(
            "other-order-on-rank",
            saw=f"{name}: rank {rank} sent to ranks {numbers(sends, 12)}; by its schedule it is "
            f"{numbers([peer for peer in wanted if 0 <= peer < RANKS], 12)}.",
            means="Forward a stage sends to the rank behind, backward to the one before, as each action is done.",
            look=look(r"isend"),
        )
    boundary = BATCH * WIDTH * 4
    if large := [message[2] for message in one["messages"] if message[2] != boundary]:
        raise Diagnosis(
            "other-messages",
            saw=f"{name}: rank {rank} sent or received {numbers(large)} bytes; {list(SHAPE)} has {boundary}.",
            means="Forward the output of a stage goes to the next one, backward its gradient comes back.",
            look=look(r"isend"),
        )


def expected(name: str, rank: int) -> list[Action]:
    """The schedule of a rank."""
    every = range(MICRO_BATCHES)
    if name == GPIPE:
        return [(FORWARD, i) for i in every] + [(BACKWARD, i) for i in every]
    ahead = RANKS - 1 - rank
    turns = [action for i in every for action in ((FORWARD, i + ahead), (BACKWARD, i))]
    return [(FORWARD, i) for i in range(ahead)] + [one for one in turns if one[1] < MICRO_BATCHES]


def judge_kept(look: Look, name: str, found: Sequence[dict[str, Any]]) -> None:
    """The numbers are right: is each send left to travel, and each loss only a number?"""
    for rank, one in enumerate(found):
        if one["waited in forward"]:
            raise Diagnosis(
                "waits-in-forward",
                saw=f"{name}: in {one['waited in forward']} of {MICRO_BATCHES} forward passes rank {rank} waited "
                f"until rank {rank + 1} had received the output.",
                means="It is received when that rank comes to it: meanwhile this one can go on. isend, and wait "
                "in backward().",
                look=look(r"\.wait\(", r"dist\.send\(", r"send"),
            )
    for rank, one in enumerate(found):
        if one["waited in backward"]:
            raise Diagnosis(
                "waits-in-backward",
                saw=f"{name}: in {one['waited in backward']} of {MICRO_BATCHES} backward passes rank {rank} "
                f"waited until rank {rank - 1} had received the gradient.",
                means="It is received when that rank comes to it: isend, into self.sending, and run() waits.",
                look=look.into(BACK)(r"dist\.send\(", r"isend.*\.wait\(", r"send.*|\.wait\(", last=True),
            )
    for rank, one in enumerate(found[:-1]):
        if one["returned"]:
            raise Diagnosis(
                "losses-of-other-ranks",
                saw=f"{name}: run() returned {one['returned']} losses on rank {rank} of {RANKS}.",
                means="Only the last stage has the model's output: whatever another one returns in place of a "
                "loss, who reads it takes it for one.",
                look=look(r"losses.*(zeros|tensor|nan|None)", r"losses"),
            )
    if found[-1]["with graph"]:
        raise Diagnosis(
            "losses-with-graph",
            saw=f"{name}: {found[-1]['with graph']} of the losses that run() returns require a gradient.",
            means="A loss that is kept holds its graph as long as it is kept: for reading, detach() it.",
            look=look(r"losses", r"loss_of"),
        )


def judge_gradients(
    look: Look,
    who: str,
    found: Any,
    right: dict[str, Tensor],
    others: dict[str, dict[str, Tensor]],
) -> None:
    """
    Args:
        others: "last", the last micro-batch's alone; "past", if the stages between pass on the gradient that has
            come to them; "sums", if each stage takes its output's sum.
    """
    found = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    if found.keys() == right.keys() and all_close(found, right):
        return
    saw = f"{who}: {example(found, right)}"
    place = look.into(BACK)
    if found.keys() == right.keys() and not any(float(value.abs().max()) for value in found.values()):
        raise Diagnosis(
            "no-backward",
            saw=f"{saw}: all gradients are zero.",
            means="On every rank output.backward() adds to the gradients of the stage.",
            look=place(r"\bgrad\(", r"backward\("),  # which gives the gradients of what it is asked for only
        )
    if all_close(found, others["last"]):
        raise Diagnosis(
            "gradients-overwritten",
            saw=f"{saw}: the last micro-batch's alone.",
            means="A step is made of all micro-batches: their gradients add up, and nothing clears them between.",
            look=place(r"zero_grad|grad = ", r"backward\("),
        )
    factor = factor_between(found, right)
    if factor is not None:
        raise Diagnosis(
            "scaled-gradients",
            saw=f"{saw}: {factor:.3g} times the right ones.",
            means="The last rank divides the loss by the number of micro-batches, once; nothing else is divided.",
            look=place(r"/|\*", r"backward\(")
            if abs(factor * MICRO_BATCHES - 1) < 1e-3 or not close(factor, MICRO_BATCHES)
            else look(r"/ ?len|/ ?self|\.div|loss_of"),
        )
    if factor_between(found, others["sums"]) is not None:
        raise Diagnosis(
            "gradient-not-used",
            saw=f"{saw}: the gradient of the output's own sum, or mean.",
            means="What came from behind says how much each number counts: output.backward(gradient) takes it.",
            look=place(r"backward\(|grad\("),
        )
    if all_close(found, others["past"]):
        raise Diagnosis(
            "passes-on-what-it-got",
            saw=f"{saw}.",
            means="Back goes x.grad, the gradient of the stage's input; what came was that of its output.",
            look=place(r"isend|send\("),
        )
    received, used = place(r"recv"), place(r"backward\(")
    if 0 < line_of(used) < line_of(received):
        raise Diagnosis(
            "backward-before-recv",
            saw=f"{saw}.",
            means="Before recv() a tensor holds what its memory had: receive it, then output.backward(gradient).",
            look=used,
        )
    raise Diagnosis(
        "wrong-gradients",
        saw=f"{saw}.",
        means="The gradient that comes from behind must meet the output of its own micro-batch.",
        look=place(r"held", r"recv"),
    )


def judge_memory(look: Look, rank: int, report: dict[str, Any]) -> None:
    one = activations()
    peak = report[ONE_BY_ONE]["peak"]
    most = RANKS - rank
    if peak > (most + 1.8) * one or report[ONE_BY_ONE]["held"]:
        raise Diagnosis(
            "activations-kept",
            saw=f"1F1B, rank {rank}: {peak} bytes were alive at once, with {one} of activations a micro-batch; "
            f"at the end {report[ONE_BY_ONE]['held']} micro-batches were held.",
            means=f"Those of {most} are needed at once: after its backward pass a micro-batch's can go.",
            look=given_up(look.into(BACK)),
        )


def given_up(back: Look) -> str:
    """Where a micro-batch is given up, or what keeps that line from being reached; or where it is not given up."""
    place = back(r"retain_graph", r"del .*held|held\.(pop|popitem|clear)\(|held\[.*\] ?=")
    if not line_of(place):
        return back(r"held")
    return place if "retain_graph" in place else unreached(back, place)
