"""Judges a block that is cut: what a rank keeps, what it sends, and whether it computes what one process does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import expect, numbers
from lab.checks.common.tensors import close, example, number
from lab.checks.common.tiny import Descent, one_thread
from lab.checks.from_scratch.tensor_parallel.judge_calls import (
    judge_biases,
    judge_forward,
    judge_names,
    judge_waited,
    not_trained,
)
from lab.checks.from_scratch.tensor_parallel.judge_sizes import fresh, judge_more, judge_part, judge_sizes
from lab.checks.from_scratch.tensor_parallel.net import (
    BATCH,
    BLOCKS,
    COLUMN,
    CUT,
    PIECES,
    RANKS,
    RATE,
    ROW,
    STEPS,
    TOKENS,
    WIDTH,
    build,
    draw_weights,
    loss_of,
)
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import compared

CALLS = [{"name": str, "bytes": int}]
START = {"sizes": [[[object]]], "layers": dict, "unplaced": [[object]]}
REPORT = {
    "keys": Tensor,
    "key biases": Tensor,
    "biases": dict,
    "losses": [float],
    "unwaited": [int],
    "forward": [CALLS],
    "backward": CALLS,
    "output": Tensor,
    "input gradient": (None, Tensor),
    "gradients": dict,
    "part": Tensor,
    "outs": Tensor,
    "more": (None, [[(Tensor, int)]]),
}
Weights = Sequence[Mapping[str, Tensor]]


@dataclass(frozen=True)
class Drawn:
    """weights[block]; inputs and target [B, T, width], the same on all ranks; of three pieces whole and wide."""

    weights: list[dict[str, Tensor]]
    inputs: Tensor
    target: Tensor
    whole: Tensor
    wide: Tensor


@dataclass(frozen=True)
class Twin:
    """What one process computes, with all weights."""

    losses: list[float]
    output: Tensor
    input_gradient: Tensor
    gradients: dict[str, Tensor]


def draw(generator: torch.Generator) -> Drawn:
    weights = draw_weights(generator)
    inputs, target = (torch.randn(BATCH, TOKENS, WIDTH, generator=generator) for _ in range(2))
    whole, wide = (torch.randn(2, width, generator=generator) for width in (2 * PIECES * RANKS, 12 * PIECES))
    return Drawn(weights, inputs, target, whole, wide)


def sent(drawn: Drawn) -> dict[str, Any]:
    given = {"weights": drawn.weights, "inputs": drawn.inputs, "target": drawn.target}
    return given | {"whole": drawn.whole, "wide": drawn.wide, "pieces": PIECES}


def twin(drawn: Drawn, change: Callable[[str, Tensor], Tensor] = lambda name, value: value) -> Twin:
    """One process's numbers, with weights that are changed first."""
    with one_thread():
        changed = [{name: change(name, value) for name, value in own.items()} for own in drawn.weights]
        blocks = nn.ModuleList(build(changed))
        optimizer = Descent(blocks.parameters(), RATE)
        found: list[Any] = []
        for _ in range(STEPS):
            x = drawn.inputs.clone().requires_grad_()
            output = x
            for block in blocks:
                output = block(output)
            loss = loss_of(output, drawn.target)
            optimizer.zero_grad()
            loss.backward()
            gradients = {name: p.grad.clone() for name, p in blocks.named_parameters() if p.grad is not None}
            found.append((float(loss.detach()), output.detach(), x.grad, gradients))
            optimizer.step()
        return Twin([one[0] for one in found], *found[0][1:])


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, START)
    for rank, report in enumerate(reports):
        judge_sizes(look, rank, report)
    expect(reports, REPORT)
    for report in reports:
        if len(report["losses"]) != STEPS or len(report["forward"]) != BLOCKS:
            raise unusable_report("a rank reported other steps or blocks")
    for rank, report in enumerate(reports):
        judge_waited(look, rank, report["unwaited"])
        judge_names(look, rank, report)
    right = twin(drawn)
    compared("output of all blocks", [report["output"] for report in reports], right.output)
    compared("losses of the steps", [report["losses"] for report in reports], right.losses)
    judge_output(look, reports, drawn, right)
    judge_forward(look, reports[0]["forward"])
    judge_backward(look, reports, right)
    for rank, report in enumerate(reports):
        judge_trained(look, rank, report)
    for rank, report in enumerate(reports):
        for step, (found, wanted) in enumerate(zip(report["losses"], right.losses, strict=True)):
            if not close(found, wanted):
                judge_biases(look.into(f"{ROW}.__init__"), reports, drawn.weights[0])
                raise Diagnosis(
                    "wrong-losses",
                    saw=f"in step {step + 1} the loss on rank {rank} is {number(found)}, not {number(wanted)}.",
                    means="The ranks together train as one process does: each gradient is that of the whole.",
                    look=look.into("ToRanks.backward")(RETURN),
                )
    judge_part(look.into("own_part"), [report["part"] for report in reports], drawn.whole)
    for parts in reports[0]["more"] or ():
        judge_more(look.into("own_part"), parts, drawn.wide)


def judge_trained(look: Look, rank: int, report: dict[str, Any]) -> None:
    """Each part has a gradient."""
    for name in CUT:
        if f"0.{name}" not in report["gradients"]:
            layer, _, own = name.rpartition(".")
            kind = COLUMN if layer in ("attention.query_key_value", "mlp.0") else ROW
            raise Diagnosis(
                "part-not-trained",
                saw=f"on rank {rank} {name} got no gradient.",
                means="Each rank trains its part: the layer computes with a parameter that wants a gradient.",
                look=look.into(f"{kind}.__init__")(rf"\b{own}\b.*=")
                if "frozen" in report["layers"].get(name, ())
                else look.into(f"{kind}.forward")(rf"{own}.*(detach|data)", rf"\b{own}\b", RETURN),
            )


def off(found: Tensor, wanted: Tensor) -> str:
    """The number that differs the most: "0.4321 instead of 0.2160"."""
    if found.shape != wanted.shape:
        return f"one of {list(found.shape)} instead of {list(wanted.shape)}"
    return example({"": found}, {"": wanted}).partition("holds ")[2]


def judge_output(look: Look, reports: Sequence[Any], drawn: Drawn, right: Twin) -> None:
    outputs = [report["output"] for report in reports]
    rank = next((rank for rank, one in enumerate(outputs) if not close(one, right.output)), None)
    if rank is None:
        return
    saw = f"a number of the output on rank {rank} is {off(outputs[rank], right.output)}"

    def says(name: str, means: str, place: str) -> Diagnosis:
        return Diagnosis(name, saw=f"{saw}.", means=means, look=place)

    row = look.into(f"{ROW}.forward")
    sums = [len(block) for block in reports[0]["forward"]]
    if not all(close(one, outputs[0]) for one in outputs):
        if min(sums) == 0:
            raise says(
                "not-summed",
                "Each rank has a term of the sum only: the ranks' outputs differ, and none is the block's.",
                row(r"linear", RETURN),
            )
        raise says(
            "conjugates-swapped",
            "Column parallel takes the same x on all ranks (ToRanks); row parallel ends with SumOverRanks.",
            look.into(f"{COLUMN}.forward")(r"apply", RETURN),
        )
    if place := fresh(look, reports[0], drawn.weights[0]):
        raise says(
            "not-of-the-whole", "A rank's weights are a part of the whole layer's: take it, draw none.", place
        )
    piece = drawn.weights[0][CUT[0]].chunk(RANKS)[0]
    at = look(r"query_key_value\b.*=", r"query_key_value")
    if reports[0]["keys"].shape == piece.shape and torch.equal(reports[0]["keys"], piece):
        raise says(
            "pieces-not-cut-apart",
            "Queries, keys and values lie one behind the other: rank 0 got all queries and half of the keys.",
            # Where parallelize() says that there are pieces, it is own_part() that does not go by them.
            at if "def " in look(r"query_key_value\b.*(pieces|\b3\b)") else look.into("own_part")(RETURN),
        )
    piece = drawn.weights[0][CUT[1]].chunk(RANKS)[0]
    if torch.equal(reports[0]["key biases"], piece):
        raise says(
            "bias-of-other-outputs",
            "The rank's outputs are parts of each piece, and their biases too: cut the bias as the weight.",
            look.into(f"{COLUMN}.__init__")(r"bias"),
        )
    biases = ("attention.out.bias", "mlp.2.bias")
    for factor, name, means in (
        (RANKS, "bias-on-every-rank", f"Each rank has added the bias before the sum, so it came {RANKS} times."),
        (0, "bias-forgotten", "The bias is missing: it is added once, after the sum."),
    ):
        other = twin(drawn, lambda n, v, factor=factor: factor * v if n in biases else v)  # type: ignore[misc]
        if close(outputs[rank], other.output):
            raise says(name, means, row(r"bias", RETURN))
    mean = row(r"/", RETURN)
    if "/" not in mean and "/" in (given := look.into("SumOverRanks.forward")(r"/")):
        mean = given
    scaled = twin(drawn, lambda n, v: v / RANKS if n in ("attention.out.weight", "mlp.2.weight") else v)
    if close(outputs[rank], scaled.output):
        raise says("averaged", "The terms are summed: a mean makes the layer's output smaller.", mean)
    raise says(
        "wrong-output",
        "The ranks' parts must be those of one layer: the rows of the second belong to the columns of the first.",
        look.into("own_part")(r"chunk|\[", RETURN),
    )


def judge_backward(look: Look, reports: Sequence[Any], right: Twin) -> None:
    count = len(reports[0]["backward"])
    said = f"in the backward pass of {BLOCKS} blocks rank 0 called {numbers([count])} all-reduces"
    to, over = look.into("ToRanks.backward"), look.into("SumOverRanks.backward")
    column = look.into(f"{COLUMN}.forward")
    gradients = [report["input gradient"] for report in reports]
    if any(one is None for one in gradients):
        raise Diagnosis(
            "no-input-gradient",
            saw="the input of the first block got no gradient.",
            means="The layers before need it: what is computed must stay in autograd's graph.",
            look=column(RETURN),
        )
    wrong = [rank for rank, one in enumerate(gradients) if not close(one, right.input_gradient)]
    if wrong:
        said += (
            f"; a number of the input's gradient on rank {wrong[0]} is "
            f"{off(gradients[wrong[0]], right.input_gradient)}"
        )
    if count < 2 * BLOCKS:
        raise Diagnosis(
            "input-gradient-not-summed",
            saw=f"{said}.",
            means="Each rank has the gradient that came through its own columns: x's is the sum of these.",
            look=to(RETURN) if column.mentions("ToRanks") else column(RETURN),
        )
    if count > 2 * BLOCKS:
        raise Diagnosis(
            "summed-in-both-directions",
            saw=f"{said}.",
            means="The gradient of a sum is there on every rank already: summed again, it is too large.",
            look=over(r"reduce|gather|summed\(", RETURN),
        )
    if wrong and "def " not in (divided := to(r"/|mean")):
        raise Diagnosis(
            "input-gradient-averaged",
            saw=f"{said}.",
            means="Each rank has a term of x's gradient, from its own columns: it is their sum, not their mean.",
            look=divided,
        )
    if wrong:
        raise Diagnosis(
            "wrong-conjugate",
            saw=f"{said}.",
            means="ToRanks hands on forward and sums backward; SumOverRanks sums forward and hands on backward.",
            look=over(r"summed|/|\*") if "def " not in over(r"summed|/|\*") else to(RETURN),
        )
    for rank, report in enumerate(reports):
        for name, wanted in right.gradients.items():
            if name.split(".", 1)[1] in CUT:
                continue
            found = report["gradients"].get(name)
            if not isinstance(found, Tensor):
                raise not_trained(look, rank, name, report["biases"])
            if not close(found, wanted):
                raise Diagnosis(
                    "replicas-differ",
                    saw=f"the gradient of {name}, which all ranks have whole, is not that of one process on "
                    f"rank {rank}: {off(found, wanted)}.",
                    means="All ranks step it alike: what each adds to the sum must not depend on their number.",
                    look=look.into(f"{ROW}.forward")(r"bias", RETURN),
                )
