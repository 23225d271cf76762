"""Judges the units of MyFSDP: what is in each, and how much of it a rank keeps."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.base.source import searchable
from lab.base.words import one_line
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import first_of
from lab.checks.common.syntax import arguments_rebound
from lab.checks.from_scratch.fsdp.judge_calls import UNITS
from lab.checks.from_scratch.fsdp.net import BLOCKS, Net, shard_of_a_block
from lab.grading.diagnosis import Diagnosis

# Where a unit's parameters are looked for.
TAKEN = (r"children\(", r"^(?!self\.names).*(block|part).*(modules|parameters)\(", r"parameters")


def judge_units(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """There are as many as there should be, and nothing is in none."""
    for rank, report in enumerate(reports):
        lost = report["in no unit"]
        if lost and (len(report["order"]) == UNITS or lost[0].startswith("blocks.")):
            raise Diagnosis(
                "in-no-unit",
                saw=f"of rank {rank}'s parameters {len(lost)} {'is' if len(lost) == 1 else 'are'} in no unit, "
                f"{one_line(lost[0], 60)}{' first' if len(lost) > 1 else ''}.",
                means="They stay whole on every rank: a unit has those of a part itself and of all modules in it.",
                look=look(*TAKEN),
            )


def padding_of(look: Look) -> str:
    """The place where it is said how many zeros follow the parameters; where the shard is cut, if none do."""
    unit = look.into("Unit.__init__")
    place = zeros_of(unit)
    condition = unit.under(re.escape(place.partition("  ")[2])) if line_of(place) else ""
    return condition if re.search(r"% ?\d", searchable(condition)) else place


def zeros_of(unit: Look) -> str:
    """The same, whatever it is under."""
    for call, argument, position in (("pad", "pad", 1), ("new_zeros", "size", 0), ("zeros", "size", 0)):
        if place := unit.source_of(call, argument, position, like=r"%|//"):
            return place if re.search(r"%|//", searchable(place)) else unit(rf"\b{call}\(")
    return unit(r"\bpad|zeros", r"chunk|split", r"//", r"self\.shard = ")


def zeros_in_front(state: dict[str, Tensor], like: dict[str, Tensor], ranks: int) -> bool:
    """Whether the parameters of each unit are those of before, or moved on by the zeros that N divides it with."""
    moved, every = False, [name for name, _ in Net().named_parameters()]
    for unit in (*(f"blocks.{number}." for number in range(BLOCKS)), ""):
        names = [name for name in every if name.startswith(unit) and (unit or not name.startswith("blocks."))]
        own, before = (torch.cat([one[name].flatten() for name in names]) for one in (state, like))
        zeros = -len(before) % ranks
        if not torch.equal(own, torch.cat([before.new_zeros(zeros), before[: len(before) - zeros]])):
            return False
        moved = moved or zeros > 0
    return moved


def judge_filled(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """fill() fills the tensor that it is given, where it gives its name to another one."""
    fill = look.into("Unit.fill")
    for rank, report in enumerate(reports):
        if report["not filled"] and (rebound := first_of(fill, arguments_rebound)):
            raise Diagnosis(
                "whole-not-filled",
                saw=f"after fill() the tensor that it was given lacked the own shard of rank {rank}.",
                means="To assign to a name fills no tensor: gather into `whole`, or copy_() into it.",
                look=rebound,
            )


def judge_shards(look: Look, rank: int, elements: Sequence[int], whole: int, ranks: int) -> None:
    if sum(elements) > whole / ranks + UNITS * ranks:
        raise Diagnosis(
            "not-sharded",
            saw=f"the optimizer of rank {rank} of {ranks} trains {sum(elements)} of the model's {whole} numbers.",
            means=f"Each of {ranks} ranks keeps 1/{ranks}: that is what the memory is saved by.",
            look=look.into("Unit.__init__")(r"chunk|shard"),
        )
    if len(elements) < UNITS:
        raise Diagnosis(
            "too-few-units",
            saw=f"{BLOCKS} blocks and what is left make {len(elements)} units.",
            means="Only a block with a unit of its own can be gathered and freed by itself.",
            look=look(r"\[(self\.)?module,", r"Unit\(", r"for "),
        )
    blocks = sorted(elements)[1:]  # without what is left, which is less
    if len(elements) == UNITS and min(blocks) < shard_of_a_block(ranks):
        raise Diagnosis(
            "block-in-the-rest",
            saw=f"a block's unit has {min(blocks)} numbers on rank {rank}; of all its parameters it is "
            f"{shard_of_a_block(ranks)}.",
            means="A block's unit holds its own parameters and those of all modules in it: what it lacks stays "
            "whole all the time.",
            look=look(*TAKEN),
        )
