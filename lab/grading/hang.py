"""A hang in three lines: who waits in which collective, at which line, and where the other ranks were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.words import one_line, ordinal, rank_list
from lab.collectives.deadlock import Mismatch
from lab.collectives.lanes import Collective, Frame
from lab.collectives.origin import Origin, file_line, origin
from lab.grading.diagnosis import Diagnosis
from lab.grading.places import Place, place

if TYPE_CHECKING:
    from lab.ranks.reports import GroupResult, RankReport

# Diagnosis -> what it means.
MEANS = {
    "collective-on-one-rank": "A collective ends only when every rank calls it: never in a branch of some ranks.",
    "barrier-in-branch": "A barrier opens only when every rank has come to it, so it must not stand in a branch.",
    "early-return": "A rank that returns early leaves the others waiting: all must come to the last collective.",
    "uneven-steps": "Each step needs every rank: all of them must take the same number of steps.",
    "backward-skipped": "The gradients are reduced inside backward(): every rank must call it in every step.",
    "forward-skipped": "Weights are gathered in each forward pass: every rank must run the same passes.",
    "different-order": "Collectives are matched by their order: all ranks must call the same ones in one order.",
    "different-sizes": "A collective needs tensors of the same size and type on every rank.",
}  # fmt: skip

_SKIPPED = {
    "backward": "backward-skipped",
    "fsdp-backward": "backward-skipped",
    "fsdp-forward": "forward-skipped",
    "ddp-forward": "forward-skipped",
}
_TYPES = {"Float": "float32", "Double": "float64", "Long": "int64", "Int": "int32", "Half": "float16"}


@dataclass(frozen=True)
class Side:
    """The ranks that came to one and the same collective, and where it stands in the student's code."""

    ranks: Sequence[int]
    collective: Collective
    origin: Origin
    place: Place

    @property
    def line(self) -> tuple[str, int, str]:
        frame = self.origin.frame
        return (frame.file, frame.line, self.origin.issuer) if frame else ("", 0, self.origin.issuer)

    @property
    def waits(self) -> str:
        return f"{rank_list(self.ranks)} {'waits' if len(self.ranks) == 1 else 'wait'} in {self.origin}"

    @property
    def look(self) -> str:
        return look(self.origin.frame, self.place)


def diagnose(result: GroupResult, code: Path) -> Diagnosis | None:
    """The diagnosis of a group whose ranks disagree about a collective; None where that is not known."""
    mismatch = result.deadlock
    if mismatch is None:
        return None
    lanes = {report.rank: report.collectives for report in result.reports}
    sides = _sides(mismatch.waiting, code)
    own = [side for side in sides if side.origin.frame]
    if mismatch.kind == "shape" and len(sides) == 1 and own:
        return _sizes(sides[0], mismatch)
    if not any(side.place.branch for side in own) and (earlier := _parted(lanes, mismatch, own, code)):
        return _two_places(earlier, lanes, code)
    if len(own) > 1:
        return _two_places(own, lanes, code)
    main = own[0] if own else sides[0]
    gone = [rank for side in sides if side is not main for rank in side.ranks]
    others = sorted({*gone, *(rank for rank in mismatch.absent if result.reports[rank].all_recorded)})
    return _left_alone(main, others, result, code)


def _left_alone(main: Side, others: Sequence[int], result: GroupResult, code: Path) -> Diagnosis:
    """The others have ended, or left the student's code for the next part of the check, without it."""
    if uneven := _uneven(main, others, {report.rank: report.collectives for report in result.reports}, code):
        return uneven
    here, issuer = main.place, main.origin.issuer
    early = _early_return(main, [result.reports[rank] for rank in others], code)
    verb, look_at = "without calling it", look(early, place(early, code)) if early else main.look
    if issuer in _SKIPPED:
        name = _SKIPPED[issuer]
        verb = "without a backward pass" if name == "backward-skipped" else "without this forward pass"
    elif main.origin.call.endswith("barrier") and here.branch:
        name = "barrier-in-branch"
    elif early:
        name = "early-return"
    else:
        name = "collective-on-one-rank"
    function = main.origin.function
    left = f"returned from {function}()" if function and function != "<module>" else "had gone on"
    return Diagnosis(
        name, saw=f"{main.waits}; {rank_list(others)} {left} {verb}.", means=MEANS[name], look=look_at
    )


def _early_return(main: Side, others: Sequence[RankReport], code: Path) -> Frame | None:
    """The `return` at which the others left a function before they came to its collective; None if there is none.

    One that stands above the collective, or in a branch, from the innermost function to the outermost.
    """
    own = [frame for frame in main.collective.frames if Path(frame.file).is_relative_to(code)]
    for here in reversed(own):
        for report in others:
            left = report.left.get((here.file, here.function))
            if left is not None and left.line and (left.line < here.line or place(left, code).branch):
                return left
    return None


def _two_places(own: Sequence[Side], lanes: Mapping[int, Sequence[Collective]], code: Path) -> Diagnosis:
    """Different ranks came to different lines of the student's code."""
    for main in own:
        others = [rank for side in own if side is not main for rank in side.ranks]
        if uneven := _uneven(main, others, lanes, code):
            return uneven
    first, second = own[0], own[1]
    name, main, other = "different-order", first, second
    for one, two in ((first, second), (second, first)):
        if one.origin.issuer in _SKIPPED and two.origin.issuer not in _SKIPPED:
            name, main, other = _SKIPPED[one.origin.issuer], one, two
            break
        if one.place.of_rank and not two.place.of_rank:
            name = "barrier-in-branch" if one.origin.call.endswith("barrier") else "collective-on-one-rank"
            main, other = one, two
    if name == "different-order" or main.collective.done:
        nth = f"as {'its' if len(main.ranks) == 1 else 'their'} {ordinal(main.collective.number)} collective"
        saw = f"{nth} {rank_list(main.ranks)} called {main.origin}, {rank_list(other.ranks)} {other.origin}."
    else:
        saw = f"{main.waits}; {rank_list(other.ranks)} called {other.origin} instead."
    return Diagnosis(name, saw=saw, means=MEANS[name], look=main.look)


def _sizes(side: Side, mismatch: Mismatch) -> Diagnosis:
    """All ranks came to the same line, with tensors that do not fit together."""
    kinds = {collective.types for collective in mismatch.waiting.values()}
    texts: dict[str, list[int]] = {}
    for rank, collective in mismatch.waiting.items():
        text = one_line(collective.elements, 60)
        if len(kinds) > 1:
            text += f" of {', '.join(_TYPES.get(kind, one_line(kind, 20).lower()) for kind in collective.types)}"
        texts.setdefault(text, []).append(rank)
    (size, first), *others = texts.items()
    saw = f"{rank_list(first)} called {side.origin} with {size}"
    saw += "".join(f", {rank_list(numbers)} with {text}" for text, numbers in others)
    return Diagnosis("different-sizes", saw=f"{saw}.", means=MEANS["different-sizes"], look=side.look)


def _uneven(
    main: Side, others: Sequence[int], lanes: Mapping[int, Sequence[Collective]], code: Path
) -> Diagnosis | None:
    """In a loop, where the others took part in fewer rounds."""
    own = [frame for frame in main.collective.frames if Path(frame.file).is_relative_to(code)]
    if not any(place(frame, code).in_loop for frame in own):
        return None

    def rounds(rank: int) -> int:
        return sum(
            (one.name, one.sizes) == (main.collective.name, main.collective.sizes)
            and _line(one, code) == main.line
            for one in lanes[rank]
        )

    mine, fewer = rounds(main.ranks[0]), sorted({rounds(rank) for rank in others})
    if len(fewer) != 1 or not 1 <= fewer[0] < mine:
        return None
    counts = {1: "once", 2: "twice"}.get(fewer[0], f"{fewer[0]} times")
    whole = all(lanes[rank] and lanes[rank][0].number == 1 for rank in (main.ranks[0], *others))
    if whole:
        saw = f"{main.waits} for the {ordinal(mine)} time, {rank_list(others)} came to it {counts}."
    else:
        saw = f"{main.waits} once more than {rank_list(others)}."
    return Diagnosis("uneven-steps", saw=saw, means=MEANS["uneven-steps"], look=main.look)


def _line(collective: Collective, code: Path) -> tuple[str, int, str]:
    found = origin(collective, code)
    return (found.frame.file, found.frame.line, found.issuer) if found.frame else ("", 0, found.issuer)


def _sides(waiting: Mapping[int, Collective], code: Path) -> list[Side]:
    """One for each line of the student's that ranks came to; all lines of the check count as one."""
    found: dict[tuple[str, int, str], Side] = {}
    for rank, collective in waiting.items():
        where = origin(collective, code)
        key = (where.frame.file, where.frame.line, where.issuer) if where.frame else ("", 0, "")
        before = found.get(key)
        if before is None:
            found[key] = Side([rank], collective, where, place(where.frame, code) if where.frame else Place())
        else:
            found[key] = Side([*before.ranks, rank], before.collective, before.origin, before.place)
    return list(found.values())


def _parted(
    lanes: Mapping[int, Sequence[Collective]], mismatch: Mismatch, own: Sequence[Side], code: Path
) -> list[Side] | None:
    """The first collective that ranks called at different lines, one of them in a branch of some ranks.

    It fitted by chance, and all that came after was out of step. Without any line of the student's in the
    mismatch, different lines will do.
    """
    by_number: dict[int, dict[int, Collective]] = {}
    for rank, collectives in lanes.items():
        for one in collectives:
            if one.group == mismatch.group and one.number < mismatch.number:
                by_number.setdefault(one.number, {})[rank] = one
    for _, issued in sorted(by_number.items()):
        sides = _sides(issued, code)
        if len(issued) == len(lanes) and len(sides) > 1 and all(side.origin.frame for side in sides):
            branches = sum(side.place.of_rank for side in sides)
            if not own or 0 < branches < len(sides):
                return sides
    return None


# Without a mismatch ----------------------------------------------------------------------------------------


def waiting(report: RankReport) -> Collective | None:
    """The collective that a rank was in when it was cut off."""
    if report.status != "timeout" and not report.cut_off:
        return None
    return next((one for one in reversed(report.collectives) if not one.done), None)


def wait_for(result: GroupResult, code: Path, *, rank: int) -> str:
    """ "Rank 0 waits for it in all_reduce at train.py:88." for the ranks that wait for `rank`; "" if none does."""
    waits = {report.rank: one for report in result.reports if (one := waiting(report)) and report.rank != rank}
    issued = {one.number for one in result.reports[rank].collectives if one.group == "0"}
    waits = {number: one for number, one in waits.items() if one.group != "0" or one.number not in issued}
    if not waits:
        return ""
    side = _sides(waits, code)[0]
    verb = "waits" if len(side.ranks) == 1 else "wait"
    return f"{rank_list(side.ranks).capitalize()} {verb} for it in {side.origin}."


def outside(result: GroupResult, code: Path) -> Diagnosis | None:
    """A rank that at the deadline was in no collective, while others waited for it in one."""
    stuck = [report for report in result.reports if report.status == "timeout"]
    for report in stuck:
        if waiting(report) or not report.student_frame or not (waits := wait_for(result, code, rank=report.rank)):
            continue
        frame = report.student_frame
        return Diagnosis(
            "stuck-rank",
            saw=f"after {report.seconds:.0f} s rank {report.rank} was still at {file_line(frame)}. {waits}",
            means="It is in no collective: in a loop that does not end, or in a call that does not come back.",
            look=look(frame, place(frame, code)),
        )
    return None


def look(frame: Frame | None, where: Place) -> str:
    """ "train.py:88  dist.all_reduce(sums)"."""
    if frame is None:
        return "an if on the rank, an early return, or a loop of unequal length in your code"
    text = one_line(where.text, 80)
    return file_line(frame) + (f"  {text}" if text else "")
