"""Judges shards that were made outside of any loader: of what ranks and worlds, only their arguments say."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, expect, expect_as_many, fail, numbers
from lab.grading.diagnosis import Diagnosis

RANK_ASKED = r"get_rank|get_world_size|environ"


def judge_worlds(look: Look, worlds: Sequence[dict[str, int]], report: Any) -> None:
    """Raise the diagnosis of the first world whose shards do not hold every sample once.

    Args:
        report: of the only rank, for each world, what the shards of its ranks hold; -1 is filler.
    """
    expect([report], [{"value": (None, [[int]]), "error": (None, ERROR)}])
    expect_as_many([report], len(worlds))
    for world, result in zip(worlds, report, strict=True):
        world_size, samples = world["world_size"], world["samples"]
        case = f"shards of {samples} samples, made as by the ranks of a world of {world_size}"
        length, item = look.into("ValidationShard.__len__"), look.into("ValidationShard.__getitem__")
        if result["error"]:
            fail(result["error"], case, item)
        held = result["value"]
        expect_as_many([held], world_size)
        lengths = sorted({len(part) for part in held})
        counted = Counter(number for number in chain(*held) if number >= 0)
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
        enough = -(-samples // world_size)
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
