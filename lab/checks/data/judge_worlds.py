"""Judges shards that were made outside of any loader: of what ranks and worlds, only their arguments say."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import reads_itself
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, numbers, remembered
from lab.checks.data.judge_validation import (
    AS_MANY,
    EACH_ONCE,
    FILLER,
    FILLER_SHAPE,
    ONE_SAMPLE,
    filler_of_another_type,
    filler_place,
)
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import part

RANK_ASKED = r"get_rank|get_world_size|environ"

HELD = {"samples": [int], "again": [int], "shapes": [[int]], "types": [str]}
READ = {"value": (None, [HELD]), "error": (None, ERROR)}

Held = Sequence[dict[str, Any]]  # [rank]: what its shard holds


def judge_worlds(look: Look, worlds: Sequence[dict[str, Any]], report: Any) -> None:
    """Raise the diagnosis of the first world whose shards do not hold every sample once.

    Args:
        report: of the only rank, for each world, what the shards of its ranks hold; -1 is filler.
    """
    expect([report], [READ | {"endless": READ, "damaged": READ}])
    expect_as_many([report], len(worlds))
    length, item = look.into("ValidationShard.__len__"), look.into("ValidationShard.__getitem__")
    for number, (world, result) in enumerate(zip(worlds, report, strict=True)):
        case = f"shards of {world['samples']} samples, made as by the ranks of a world of {world['world_size']}"
        if result["error"]:
            with part(EACH_ONCE):
                fail(result["error"], case, item)
            continue
        held = result["value"]
        expect_as_many([held], world["world_size"])
        with part(EACH_ONCE):
            judge_held(length, item, case, world, held)
            judge_again(item, case, held)
            judge_place(item, case, world, held)
        with part(AS_MANY, after=[EACH_ONCE]):
            judge_length(length, case, world, held)
        with part(FILLER):
            judge_filler(look, case, world, [one["shape"] for one in worlds[:number]], held)
            judge_damaged(item, world, result["damaged"])
            judge_end(item, world, result["endless"])


def judge_held(length: Look, item: Look, case: str, world: dict[str, Any], held: Held) -> None:
    """Every sample is in one of the shards, once."""
    samples = world["samples"]
    lengths = sorted({len(part["samples"]) for part in held})
    counted = Counter(number for number in chain(*(part["samples"] for part in held)) if number >= 0)
    missing = [number for number in range(samples) if not counted[number]]
    odd = f"sample {numbers(missing)} is in none." if missing else ""
    if twice := sorted(number for number, count in counted.items() if count > 1):
        odd = f"sample {numbers(twice)} is in several."
    if odd and any("def " not in where(RANK_ASKED) for where in (length, item)):
        raise Diagnosis(
            "group-asked-not-the-shard",
            saw=f"{case}: {odd}",
            means="The shard was told its rank and world size when it was made: self.rank, self.world_size.",
            look=next(place for where in (item, length) if "def " not in (place := where(RANK_ASKED))),
        )
    enough = -(-samples // world["world_size"])
    if len(lengths) > 1 or (missing and lengths[0] < enough) or lengths[-1] > 2 * enough:
        raise Diagnosis(
            "length-of-one-world-size",
            saw=f"{case}: they have {' and '.join(map(str, lengths))} places; {enough} is enough for all.",
            means="The length follows from the world size that the shard was given, whatever that is.",
            look=length(r"//|/|ceil|len\(", r"\breturn\b"),
        )
    if odd:
        raise Diagnosis(
            "samples-of-one-world-size",
            saw=f"{case}: {odd}",
            means="The samples follow from the rank and the world size that the shard was given.",
            look=item(r"%|\w+\s*=(?!=).*(\*|\+)", r"\*|\+", r"\breturn\b"),
        )


def judge_again(item: Look, case: str, held: Held) -> None:
    """The same for the same index, however often and in whatever order it is asked for."""
    for rank, own in enumerate(held):
        expect_as_many([own["again"]], len(own["samples"]))
        for i, (first, second) in enumerate(zip(own["samples"], own["again"], strict=True)):
            if first == second:
                continue
            here, there = (f"sample {one}" if one >= 0 else "filler" for one in (first, second))
            raise Diagnosis(
                "item-not-by-index",
                saw=f"{case}: on rank {rank}, shard[{i}] is {here}, and {there} when it is asked for again.",
                means="The next epoch asks once more, and each of a loader's processes for some: only i decides.",
                look=place
                if line_of(place := item(r"\bnext\(|\+=|\.pop\("))
                else reads_itself(item) or item(r"\.(add|append|update|setdefault|remove)\(", r"\breturn\b"),
            )


def judge_place(item: Look, case: str, world: dict[str, Any], held: Held) -> None:
    """Which samples a rank has, and in which order."""
    for rank, own in enumerate(held):
        samples = [number for number in own["samples"] if number >= 0]
        expected = list(range(rank, world["samples"], world["world_size"]))
        if samples != expected:
            raise Diagnosis(
                "samples-of-another-rank",
                saw=f"{case}: rank {rank} has samples {numbers(samples, 3)}; expected {numbers(expected, 3)}",
                means="Rank r holds r, r + world_size, r + 2 * world_size, ... So none has more than one filler.",
                look=item(r"%|\w+\s*=(?!=).*(\*|\+)", r"\*|\+", r"\breturn\b"),
            )


def judge_length(length: Look, case: str, world: dict[str, Any], held: Held) -> None:
    """No more filler than equal lengths take."""
    enough, longest = -(-world["samples"] // world["world_size"]), max(len(own["samples"]) for own in held)
    if longest > enough:
        raise Diagnosis(
            "too-much-filler",
            saw=f"{case}: they have {longest} places; {enough} is enough for all.",
            means="Where such a place begins a new batch, every rank has a forward pass of nothing but filler.",
            look=length(r"\+\s*1|//|ceil", r"\breturn\b"),
        )


def judge_filler(look: Look, case: str, world: dict[str, Any], earlier: Sequence[Any], held: Held) -> None:
    """Filler is like the samples of its own data set."""
    shape = list(world["shape"])
    for rank, own in enumerate(held):
        for got in own["shapes"]:
            if got == shape:
                continue
            saw = f"{case}: rank {rank} has filler of shape {got}; its samples have {shape}."
            if got in [list(one) for one in earlier]:
                raise remembered(look.into("ValidationShard.__getitem__"), f"{saw} Another data set had {got}.")
            raise Diagnosis(
                "filler-of-another-shape",
                saw=saw,
                means=ONE_SAMPLE if got == [1, *shape] else FILLER_SHAPE,
                look=filler_place(look),
            )
        if others := [kind for kind in own["types"] if kind != "float32"]:
            raise filler_of_another_type(look, f"{case}: rank {rank} has filler of {others[0]}")


def judge_damaged(item: Look, world: dict[str, Any], result: dict[str, Any]) -> None:
    """What goes wrong in the data set comes out."""
    if result["error"] is None:
        raise Diagnosis(
            "error-swallowed",
            saw=f"sample {world['damaged']} of the data set raised {world['error']}: {world['message']}; "
            "no shard raised anything.",
            means="A damaged file would not be counted, and nobody would know: let the error come out.",
            look=item(r"except|suppress"),
        )


def judge_end(item: Look, world: dict[str, Any], result: dict[str, Any]) -> None:
    """Where a data set ends says its length."""
    samples = world["samples"]
    case = f"a data set of {samples} samples that raises no IndexError past its end"
    if result["error"]:
        fail(result["error"], case, item)
    extra = [number for own in result["value"] for number in own["samples"] if number >= samples]
    if extra:
        raise Diagnosis(
            "end-by-error",
            saw=f"{case}: a shard gave sample {numbers(sorted(extra))}, which is none.",
            means="Not every data set raises an error there: compare the index with len(self.dataset).",
            look=item(r"except|suppress", r"\breturn\b"),
        )
