"""Means over all samples of all ranks, what a wrong step of computing them gives, and where in the code it is."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import mul

from lab.base.words import rank_list
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_classes, in_helpers, with_helpers
from lab.checks.common.syntax import names_in
from lab.checks.common.tensors import TOLERANCE


@dataclass(frozen=True)
class BatchTotal:
    """What one rank has of one batch: the sum over its samples, how many they are, and how many with filler."""

    total: float
    samples: int
    length: int

    @property
    def mean(self) -> float:
        return self.total / self.samples if self.samples else float("nan")


Batches = Sequence[Sequence[BatchTotal]]  # [rank][batch]


def candidates(batches: Batches) -> dict[str, list[list[float]]]:
    """Name of a mistake -> the results it can have, each as one value a rank. "exact" is the right one."""
    world_size, steps = len(batches), len(batches[0])
    totals = [sum(batch.total for batch in own) for own in batches]
    samples = [sum(batch.samples for batch in own) for own in batches]
    lengths = [sum(batch.length for batch in own) for own in batches]
    means = [[batch.mean for batch in own] for own in batches]
    total, count, length = sum(totals), sum(samples), sum(lengths)
    exact = total / count
    rank_means = [t / n for t, n in zip(totals, samples, strict=True)]
    batch_means = [sum(own) / steps for own in means]
    padded = [sum(batch.mean * batch.length for batch in own) for own in batches]

    def same(*values: float) -> list[list[float]]:
        return [[value] * world_size for value in values]

    return {
        "exact": same(exact),
        "own": [rank_means, batch_means, [t / n for t, n in zip(totals, lengths, strict=True)]],
        "averages": same(sum(rank_means) / world_size, sum(batch_means) / world_size),
        "filler": same(total / length, sum(padded) / length, sum(padded) / count),
        "world size": same(exact / world_size, total / world_size),
        "not divided": [*same(total), totals],
        "batches": same(total / steps, total / steps / world_size),
        "means added": [*same(sum(map(sum, means)), sum(map(sum, means)) / count), [sum(own) for own in means]],
        "last batch": [
            [own[-1] for own in means],
            *same(sum(own[-1] for own in means) / world_size, _of_last(batches)),
        ],
        "own count": [[total / n for n in samples], [total / n for n in lengths]],
        "own total": [[t / count for t in totals]],
        "ranks added": same(world_size * exact, sum(rank_means), sum(batch_means)),
        "in the loop": same(*_reduced_in_loop(batches)),
    }


def rarer(
    batches: Batches, earlier: Sequence[Batches] = (), held: int = 0, listed: int = 0
) -> dict[str, list[list[float]]]:
    """The same of mistakes that nobody makes often; they are looked for where none of the others fits.

    Args:
        earlier: what was computed before, from the first on.
        held: samples in the whole set, with those that an epoch drops; 0 where it drops none.
        listed: the length of each rank's sampler; 0 where that is how many samples came from it.
    """
    world_size = len(batches)
    totals = [sum(batch.total for batch in own) for own in batches]
    samples = [sum(batch.samples for batch in own) for own in batches]
    found: dict[str, list[list[float]]] = {}
    for size in range(1, world_size):
        for ranks in combinations(range(world_size), size):
            part = sum(totals[r] for r in ranks) / sum(samples[r] for r in ranks)
            rest = [totals[r] / samples[r] for r in range(world_size)]
            found[f"{rank_list(ranks)} alone"] = [
                [part] * world_size,
                [part if r in ranks else rest[r] for r in range(world_size)],
            ]
    found["dataset"] = [[sum(totals) / held] * world_size] if held else []
    found["sampler"] = [[sum(totals) / (listed * world_size)] * world_size] if listed else []
    first = [own[0] for own in batches]
    found["first batch"] = [
        [sum(one.total for one in first) / max(1, sum(one.samples for one in first))] * world_size
    ]
    weighted = [[sum(b.mean for b in own) * own[at].samples for own in batches] for at in (-1, 0)]
    found["last size"] = [
        ends
        for own in weighted
        for ends in ([sum(own) / sum(samples)] * world_size, [own[r] / samples[r] for r in range(world_size)])
    ]
    keeps = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
    for weights in ([1] * world_size, samples):
        found.setdefault("moving average", []).extend(
            [_moving(batches, keep, weights)] * world_size for keep in keeps
        )
    last = [own[-1].samples for own in batches]
    if all(last):
        ends = [sum(totals) / sum(last)] * world_size, [totals[r] / last[r] for r in range(world_size)]
        found["last count"] = [*ends]
    found["own count"] = [[sum(totals) / (n * world_size) for n in samples]]
    whole = [sum(int(batch.total) for own in batches for batch in own), sum(map(int, totals)), int(sum(totals))]
    found["whole numbers"] = [[one / sum(samples)] * world_size for one in whole]
    found["earlier"] = [[one] * world_size for one in _with_earlier([*earlier, batches])] if earlier else []
    return found


def _moving(batches: Batches, keep: float, weights: Sequence[int]) -> float:
    """The mean over the ranks, of these weights, of averages in which each new loss has the weight 1 - keep."""
    ends = []
    for own in batches:
        mean = own[0].mean
        for batch in own[1:]:
            mean = keep * mean + (1 - keep) * batch.mean
        ends.append(mean)
    return sum(map(mul, ends, weights)) / sum(weights)


def _with_earlier(every: Sequence[Batches]) -> list[float]:
    """Means of sums that go on from the call before: as they were on each rank, or all-reduced then."""
    sums = [
        (sum(b.total for own in one for b in own), sum(b.samples for own in one for b in own)) for one in every
    ]
    means = []
    for factor in (1, len(every[0])):
        total = count = 0.0
        for own_total, own_count in sums:
            total, count = factor * total + own_total, factor * count + own_count
        means.append(total / count)
    return means


def _of_last(batches: Batches) -> float:
    last = [own[-1] for own in batches]
    return sum(batch.total for batch in last) / max(1, sum(batch.samples for batch in last))


def _reduced_in_loop(batches: Batches) -> tuple[float, float]:
    """All-reducing the running sums after each batch counts the earlier ones again and again."""
    world_size = len(batches)
    total = samples = length = 0.0
    for step in range(len(batches[0])):
        total = world_size * total + sum(own[step].total for own in batches)
        samples = world_size * samples + sum(own[step].samples for own in batches)
        length = world_size * length + sum(own[step].length for own in batches)
    return total / samples, total / length


# A number that is none of the known ones comes near one of them by chance: the less so, the nearer is near.
CHANCE = TOLERANCE / 5


def near(observed: float, expected: float, tolerance: float = TOLERANCE) -> bool:
    """Equal but for rounding; NaN is near nothing."""
    return abs(observed - expected) <= tolerance * max(abs(expected), 1e-12)


def mistake(observed: Sequence[float], known: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """The name of the candidate that all ranks have; "some ranks": only some have the exact one; or "other"."""
    for name, results in known.items():
        tolerance = TOLERANCE if name == "exact" else CHANCE
        if any(all(map(near, observed, result, [tolerance] * len(result))) for result in results):
            return name
    exact = known["exact"][0]
    return "some ranks" if any(map(near, observed, exact)) else "other"


def telling(known: Mapping[str, Sequence[Sequence[float]]], *, apart: Collection[str] = ()) -> bool:
    """Whether no mistake gives the right result, nor one of `apart` (by default: any) the result of another."""

    def same(one: str, other: str) -> bool:
        return any(all(map(near, x, y)) for x in known[one] for y in known[other])

    return not any(
        same(one, other)
        for one, other in combinations(known, 2)
        if one == "exact" or not apart or (one in apart and other in apart)
    )


# ---- where in the student's code

_GIVEN = ("train_step", "train_one_epoch", "evaluate", "train")


def worked_out(look: Look, *patterns: str) -> str:
    """The first line like this of the function, or else of a class that it uses, or else where it reduces or ends.

    An earlier pattern before a later one.
    """
    for wanted in (patterns, (r"reduce|gather",)):
        places = (find for find in (look(*wanted), *(in_classes(look, one) for one in wanted)) if line_of(find))
        if wanted and (place := next(places, "")):
            return place
    return look(r"\breturn\b")


def moving_at(look: Look) -> str:
    """Where a value becomes a part of itself and a part of something else: a moving average; "" if nowhere."""
    lines = [part.lineno for part in _statements(look) if _weighs_itself(part)]
    return look.line(min(lines)) if lines else in_helpers(look, r"(?<!\d)0?\.\d+\s*\*|\blerp")


def _statements(look: Look) -> Iterator[ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr]:
    """Those of the function, of its helpers, and of the classes that these use."""
    _, tree, _ = look.source()
    functions = [node for node in with_helpers(look) if node.name == look.function or node.name not in _GIVEN]
    used = {name for node in functions for name in names_in(node)}
    classes = [one for one in (tree.body if tree else ()) if isinstance(one, ast.ClassDef) and one.name in used]
    for node in (*functions, *classes):
        for part in ast.walk(node):
            if isinstance(part, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
                yield part


def _weighs_itself(part: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) -> bool:
    """mean = 0.9 * mean + 0.1 * loss, mean += 0.1 * (loss - mean), mean *= 0.9, mean.lerp_(loss, 0.1)."""
    if part.value is None:
        return False
    calls = [one for one in ast.walk(part.value) if isinstance(one, ast.Call)]
    if {ast.unparse(one.func).rpartition(".")[2] for one in calls} & {"lerp", "lerp_", "mul_"}:
        return True
    if isinstance(part, ast.Expr):
        return False
    targets: Sequence[ast.expr] = part.targets if isinstance(part, ast.Assign) else [part.target]
    if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Mult):
        return True
    parts = [one for one in ast.walk(part.value) if isinstance(one, ast.BinOp)]
    weighed = [one for one in parts if isinstance(one.op, ast.Mult | ast.Div)]
    inside = {ast.unparse(one) for product in weighed for one in ast.walk(product) if isinstance(one, ast.expr)}
    adds = isinstance(part, ast.AugAssign) or any(isinstance(one.op, ast.Add) for one in parts)
    return adds and any(ast.unparse(target) in inside for target in targets)


def after_loop(look: Look) -> str:
    """The first line below a loop that reads what the last round has left in a variable; "" where none does."""
    _, _, node = look.source()
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)] if node else []
    for loop in (part for part in (ast.walk(node) if node else ()) if isinstance(part, ast.For)):
        first, last = loop.lineno, loop.end_lineno or loop.lineno
        stored = [name for name in names if isinstance(name.ctx, ast.Store)]
        left = {name.id for name in stored if first <= name.lineno <= last}
        left -= {name.id for name in stored if not first <= name.lineno <= last}
        reads = [name.lineno for name in names if name.id in left and name.lineno > last]
        if reads:
            return look.line(min(reads))
    return ""
