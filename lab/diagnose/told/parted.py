"""The first collective at which the ranks of a real job parted, from their flight recorder dumps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.base.words import one_line, rank_list
from lab.collectives.deadlock import Mismatch, find_mismatch
from lab.collectives.lanes import Collective, Lane
from lab.collectives.origin import Origin, origin
from lab.diagnose.told.finding import Finding

MODULES = ("main", "train", "data", "distributed_utils", "ddp_utils", "fsdp_utils", "model")
_MEANS = {
    "missing": "A collective ends only when every rank calls it: the others wait until the timeout.",
    "order": "Collectives are matched by their order: all ranks must call the same ones in one order.",
    "shape": "A collective needs tensors of the same size and type on every rank.",
}
_NAMES = {"missing": "rank-missing", "order": "different-order", "shape": "different-sizes"}


def from_dumps(lanes: Mapping[int, Lane], world_size: int) -> Finding | None:
    """Who waits where, and what the others did instead; None where the dumps show no difference.

    Args:
        world_size: how many ranks there were; 0 where that is not known.
    """
    issued = {rank: lane.collectives for rank, lane in lanes.items()}
    code = _code(issued)
    mismatch = find_mismatch(issued, ended=list(issued))
    if mismatch is None:
        return _silent(issued, world_size, code)
    if (earlier := _parted(issued, mismatch, code)) is not None:
        mismatch = earlier
    if mismatch.kind == "missing":
        saw = _missing(mismatch, issued, code)
    else:
        saw = "; ".join(
            f"{rank_list(group)} called {where}, with {one_line(collective.elements, 60)}"
            for group, collective, where in _sides(mismatch.waiting, code)
        )
        saw = f"As collective number {mismatch.number} {saw}."
    return Finding(_NAMES[mismatch.kind], saw, _MEANS[mismatch.kind], (*_look(mismatch.waiting, code),), order=1)


def _missing(mismatch: Mismatch, issued: Mapping[int, Sequence[Collective]], code: Path) -> str:
    (waiting, _, where), *_ = _sides(mismatch.waiting, code)
    verb = "waits" if len(waiting) == 1 else "wait"
    parts = [f"{rank_list(waiting)} {verb} in {where}, collective number {mismatch.number}"]
    lasts: dict[str, list[int]] = {}
    for rank in mismatch.absent:
        own = [one for one in issued[rank] if one.group == mismatch.group]
        lasts.setdefault(str(origin(own[-1], code)) if own else "", []).append(rank)
    for last, absent in lasts.items():
        never = f"{rank_list(absent)} never came to it"
        parts.append(
            f"{never}: the last that {_it(absent)} called was {last}" if last else f"{never}, nor to any other"
        )
    text = "; ".join(parts) + "."
    return text[:1].upper() + text[1:]


def _parted(issued: Mapping[int, Sequence[Collective]], mismatch: Mismatch, code: Path) -> Mismatch | None:
    """An earlier collective that the ranks called at different lines: it fitted by chance, the next did not."""
    by_number: dict[int, dict[int, Collective]] = {}
    for rank, collectives in issued.items():
        for one in collectives:
            if one.group == mismatch.group and one.number < mismatch.number:
                by_number.setdefault(one.number, {})[rank] = one
    for number, waiting in sorted(by_number.items()):
        lines = {
            (where.frame.file, where.frame.line) for one in waiting.values() if (where := origin(one, code)).frame
        }
        if len(waiting) == len(issued) and len(lines) > 1:
            return Mismatch("order", mismatch.group, number, waiting, [])
    return None


def _it(numbers: Sequence[int]) -> str:
    return "it" if len(numbers) == 1 else "they"


def _silent(issued: Mapping[int, Sequence[Collective]], world_size: int, code: Path) -> Finding | None:
    """Ranks that left no dump, while the others wait: they were gone, or in no collective at all."""
    waiting = {rank: own[-1] for rank, own in issued.items() if own}
    silent = [rank for rank in range(min(world_size, 1 << 16)) if rank not in issued]
    if not waiting or not silent:
        return None
    (some, _, where), *_ = _sides(waiting, code)
    verb = "waits" if len(some) == 1 else "wait"
    return Finding(
        "rank-without-dump",
        f"{rank_list(some).capitalize()} {verb} in {where}; {rank_list(silent)} left no dump.",
        "A rank that leaves none has died before, or is stuck where PyTorch cannot write one.",
        ("its own error, further up in the log", *_look(waiting, code)),
        order=2,
    )


def _sides(waiting: Mapping[int, Collective], code: Path) -> list[tuple[list[int], Collective, Origin]]:
    """The ranks that came to one and the same line, what they called and where it stands."""
    found: dict[tuple[str, str], tuple[list[int], Collective, Origin]] = {}
    for rank, collective in waiting.items():
        where = origin(collective, code)
        found.setdefault((str(where), collective.elements), ([], collective, where))[0].append(rank)
    return list(found.values())


def _look(waiting: Mapping[int, Collective], code: Path) -> list[str]:
    frames = [where.frame for _, _, where in _sides(waiting, code) if where.frame]
    lines = [f"look at {Path(frame.file).name}, line {frame.line}, in {frame.function}()" for frame in frames]
    return list(dict.fromkeys(lines))


def _code(issued: Mapping[int, Sequence[Collective]]) -> Path:
    """The folder of the code that ran: that of the outermost frame in one of the seven modules."""
    for collectives in issued.values():
        for collective in collectives:
            for frame in collective.frames:
                if Path(frame.file).stem in MODULES and "site-packages" not in frame.file:
                    return Path(frame.file).parent
    return Path("/nowhere")
