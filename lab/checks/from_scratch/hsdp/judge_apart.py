"""Judges a step of MyHSDP where one of the two groups has one rank: on one node, and on nodes of one rank each."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_values import unreached
from lab.checks.common.report import expect, expect_as_many
from lab.checks.common.tensors import close
from lab.checks.from_scratch.hsdp.net import APART
from lab.grading.diagnosis import Diagnosis

ALL_THE_SAME = (
    "A group of one rank has nothing to send; the mean, self.shard.grad and free() are needed there, too."
)


def judge_apart(look: Look, reports: Sequence[Any], weights: Tensor, gradient: Tensor) -> None:
    """`weights`, `gradient`: those of all parameters, of one process."""
    once = {"gathered": int, "gradient": (None, [float]), "whole after": [int]}
    expect(reports, dict.fromkeys(APART, once))
    for key, per_node in APART.items():
        parts = torch.nn.functional.pad(gradient, (0, -len(gradient) % per_node)).chunk(per_node)
        for rank, report in enumerate(reports):
            expect_as_many([report[key]["whole after"]], 2)
            judge_once(look, f"on {key}, rank {rank}", report[key], len(weights), parts[rank % per_node])


def judge_once(look: Look, who: str, once: dict[str, Any], length: int, wanted: Tensor) -> None:
    gather, reduce = look.into("MyHSDP.gather"), look.into("MyHSDP.reduce")
    if once["gathered"] != length:
        raise Diagnosis(
            "group-of-one-not-gathered",
            saw=f"{who} has {once['gathered']} of {length} numbers in its parameters after gather().",
            means="A node of one rank has all in its own shard: the parameters are filled with it all the same.",
            look=left_before(gather, r"\.data ?=|copy_|set_"),
        )
    if once["gradient"] is None:
        raise Diagnosis(
            "group-of-one-no-gradient",
            saw=f"{who} has no gradient of its shard after reduce().",
            means=ALL_THE_SAME,
            look=left_before(reduce, r"\.grad ?="),
        )
    if not close(torch.tensor(once["gradient"]), wanted):
        raise Diagnosis(
            "group-of-one-wrong-gradient",
            saw=f"{who} has another gradient of its shard after reduce() than one process.",
            means=ALL_THE_SAME,
            look=left_before(reduce, r"(?<!/)/(?!/)|\bdiv_?\("),
        )
    if any(once["whole after"]):
        raise Diagnosis(
            "group-of-one-not-freed",
            saw=f"{who} keeps {sum(once['whole after'])} numbers of what is whole after reduce().",
            means=ALL_THE_SAME,
            look=left_before(reduce, r"free\("),
        )


def left_before(look: Look, pattern: str) -> str:
    """What keeps a line like this from being reached, which is reached where the groups have more ranks."""
    return unreached(look, place) if line_of(place := look(pattern)) else look(r"^if ", r"return")
