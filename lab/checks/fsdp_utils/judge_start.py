"""Judges what a sharded model starts from: rank 0's weights and all else of rank 0's, put together again."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import for_around, in_helpers
from lab.checks.common.look_values import skips
from lab.checks.common.report import expect
from lab.checks.common.tensors import Tensors, all_close, close, example
from lab.grading.diagnosis import Diagnosis


def join(look: Look, shards: Sequence[Any], like: Tensors) -> dict[str, Tensor]:
    """The whole tensors from each rank's rows."""
    expect(shards, dict.fromkeys(like, Tensor))
    whole = {}
    for name, tensor in like.items():
        rows = [shard[name] for shard in shards]
        fitting = all(r.dim() == tensor.dim() and r.shape[1:] == tensor.shape[1:] for r in rows)
        held = " and ".join(str(list(r.shape)) for r in rows)
        if not fitting or sum(len(r) for r in rows) != len(tensor) or not all(r.is_floating_point() for r in rows):
            raise Diagnosis(
                "wrong-shards",
                saw=f"{name} is {list(tensor.shape)}; the ranks hold {held} of it.",
                means="Together the shards must be the whole parameter, each row on one rank.",
                look=look.source_of("fully_shard", "mesh") or look(r"[Mm]esh\s*=\s*\w", r"fully_shard\("),
            )
        whole[name] = torch.cat(rows)
    return whole


def judge_start(look: Look, start: Sequence[Any], weights: Sequence[Tensors]) -> None:
    """Rank 0's weights, in float32."""
    whole = join(look, start, weights[0])
    if kinds := {str(shard[name].dtype) for shard in start for name in whole} - {"torch.float32"}:
        raise Diagnosis(
            "parameters-not-fp32",
            saw=f"the parameters are {kinds.pop()} after sharding.".replace("torch.", ""),
            means="In low precision small updates are rounded away; parameters must stay in fp32.",
            look=look(r"bfloat16|half|float16|\.to\("),
        )
    if all_close(whole, weights[0]):
        return
    mean = {name: torch.stack([one[name] for one in weights]).mean(dim=0) for name in weights[0]}
    if all_close(whole, mean):
        raise Diagnosis(
            "weights-averaged",
            saw=f"the model has the mean of the ranks' weights, not rank 0's: {example(whole, weights[0])}.",
            means="Means of random weights are smaller than they were drawn to be: send rank 0's, as they are.",
            look=look(r"reduce\(|gather\(", r"mean\(", r"fully_shard\("),
        )
    own = True
    for name in weights[0]:
        rows = torch.cat([torch.full((len(shard[name]),), rank) for rank, shard in enumerate(start)])
        mixed = torch.stack([weights[rank][name][row] for row, rank in enumerate(rows.tolist())])
        own = own and close(whole[name], mixed)
    if own:
        raise Diagnosis(
            "ranks-start-apart",
            saw=f"every rank has sharded its own weights, not rank 0's: {example(whole, weights[0])}.",
            means="The model is stitched together from pieces of different models.",
            look=look(
                r"^\w+\s*=\s*\w+\.parameters\(\)$",
                r"broadcast|scatter|send",
                r"manual_seed",
                r"\.to\(|\.cuda\(",
                r"fully_shard\(",
            ),
        )
    sends = look(
        r"broadcast|reduce\w*\(|scatter|gather|load_state",
        r"\binit\.|reset_parameters",
        r"manual_seed|\w_\(|\.data\b",
        r"fully_shard\(",
    )
    some = any(close(whole[name], weights[0][name]) for name in weights[0])  # what the loop goes through is sent
    raise Diagnosis(
        "weights-changed",
        saw=f"the sharded model does not have rank 0's weights: {example(whole, weights[0])}.",
        means="Every rank must start from its shard of rank 0's model.",
        look=(skips(look, sends) or for_around(look, sends) if some else sends)
        if look.mentions("broadcast")
        else in_helpers(look, r"\binit\.|reset_parameters\(")
        or look(r"manual_seed|\w_\(|\.data\b", r"fully_shard\("),
    )


def judge_rest(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """What is not trained: rank 0's too, and still not to be trained. Rank r had r + 1 everywhere."""
    for rank, report in enumerate(reports):
        if any(value != 1 for value in report["frozen"]):
            raise Diagnosis(
                "rest-not-sent",
                saw=f"rank {rank} does not have rank 0's values in a frozen parameter or in a buffer.",
                means="No gradient ever brings these together: BatchNorm's statistics, a frozen layer. Send all.",
                look=(asked if line_of(asked := look(r"\bif\b.*requires_grad")) else "")
                or skips(look, look(r"broadcast"))
                or look(r"requires_grad|parameters\(", r"broadcast", r"fully_shard\("),
            )
        if "frozen" in report["trainable"]:
            raise Diagnosis(
                "unfrozen",
                saw="a parameter with requires_grad=False can be trained after get_fsdp_model().",
                means="What was frozen on purpose would be changed: sharding must leave that as it is.",
                look=look(r"requires_grad", r"fully_shard\("),
            )
