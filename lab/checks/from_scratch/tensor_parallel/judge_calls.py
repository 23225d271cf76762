"""Judges what a block that is cut sends: all-reduces alone, how many forward, and of how many bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.tensors import close
from lab.checks.from_scratch.tensor_parallel.net import BATCH, COLUMN, ROW, TOKENS, WHOLE_BIASES, WIDTH
from lab.grading.diagnosis import Diagnosis

ALL_REDUCE = "allreduce_"
ACTIVATIONS = BATCH * TOKENS * WIDTH * 4  # bytes


def judge_waited(look: Look, rank: int, lines: Sequence[int]) -> None:
    """What is summed is there when it is returned."""
    if lines:
        raise Diagnosis(
            "not-waited",
            saw=f"rank {rank} went on with a sum for which it had not waited.",
            means="With async_op=True it has only begun, and what is read may be a term: wait() for it before.",
            look=look.line(lines[0]),
        )


def not_trained(look: Look, rank: int, name: str, biases: Mapping[str, Tensor]) -> Diagnosis:
    """A tensor that all ranks have whole got no gradient: it is no parameter, or is not used as one.

    name    as in the list of blocks, "0.mlp.2.bias"
    biases  those that are parameters
    """
    own = name.rpartition(".")[2]
    init, forward = look.into(f"{ROW}.__init__"), look.into(f"{ROW}.forward")
    frozen = init(rf"\b{own}\b.*requires_grad|requires_grad.*\b{own}\b")
    made = init(rf"register_buffer\(.*\b{own}\b", rf"self\.{own}\b.*=", rf"\b{own}\b")
    used = forward(rf"{own}.*(detach|data)", rf"\b{own}\b", RETURN)
    return Diagnosis(
        "whole-not-trained",
        saw=f"on rank {rank} {name} got no gradient.",
        means="What is kept whole is trained, too: as an nn.Parameter, with which the layer computes.",
        look=frozen if line_of(frozen) else used if name.partition(".")[2] in biases else made,
    )


def judge_names(look: Look, rank: int, report: dict[str, Any]) -> None:
    calls = [call for part in (*report["forward"], report["backward"]) for call in part]
    if others := [call["name"] for call in calls if call["name"] != ALL_REDUCE]:
        raise Diagnosis(
            "other-collective",
            saw=f"rank {rank} called {others[0].strip('_')} in a step.",
            means="Between the two layers of a pair nothing is sent, and behind them one all-reduce.",
            look=look.into(f"{COLUMN}.forward")(r"gather|dist\.", RETURN),
        )
    if large := [call["bytes"] for call in calls if call["bytes"] > ACTIVATIONS]:
        forward = any(call["bytes"] > ACTIVATIONS for part in report["forward"] for call in part)
        column, row = look.into(f"{COLUMN}.forward"), look.into(f"{ROW}.forward")
        function = "SumOverRanks" if forward else "ToRanks"  # the one that sums in this direction
        odd, other = (column, row) if forward else (row, column)  # where it does not belong comes first
        raise Diagnosis(
            "too-many-bytes",
            saw=f"an all-reduce of rank {rank} in the {'forward' if forward else 'backward'} pass had {large[0]} "
            f"bytes; the block's input has {ACTIVATIONS}.",
            means="What is summed is as large as the input of the pair, not as what is between."
            if forward
            else "ToRanks is for x, which all ranks have: what is between is each rank's own, both ways.",
            look=(odd if odd.mentions(function) else other)(function, r"apply", RETURN),
        )


def judge_forward(look: Look, forward: Sequence[Any]) -> None:
    for calls in forward:
        if len(calls) != 2:
            raise Diagnosis(
                "too-many-all-reduces",
                saw=f"in the forward pass of a block rank 0 called {len(calls)} all-reduces.",
                means="Two: one behind attention, and one behind the MLP.",
                look=look.into(f"{COLUMN}.forward")(r"Sum|summed|all_reduce", RETURN),
            )


def judge_biases(look: Look, reports: Sequence[dict[str, Any]], weights: Mapping[str, Tensor]) -> None:
    """Once the losses are wrong: the biases that stay whole are not the ranks' parts of a sum."""
    for name in WHOLE_BIASES:
        found = [report["biases"].get(name) for report in reports]
        if not all(isinstance(one, Tensor) and one.shape == weights[name].shape for one in found):
            continue
        if close(sum(found), weights[name]):
            raise Diagnosis(
                "bias-shared-out",
                saw=f"when the training begins, the ranks' {name} add up to the whole one.",
                means="Each gets the whole gradient, and the sum learns too fast: keep it whole, add it once.",
                look=look(r"self\.bias\b.*=", r"bias"),
            )
