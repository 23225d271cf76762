"""Judges who goes first in load_once(): those of whom is_first says so, all of them, and nobody else."""

from typing import Any

from lab.base.words import rank_list
from lab.checks.common.look import Look
from lab.grading.diagnosis import Diagnosis


def loads_ahead(report: dict[str, Any]) -> bool:
    """Whether a rank calls load() before it comes to any barrier."""
    names = [event["what"] for event in report["events"]]
    return "load" in names and "barrier" not in names[: names.index("load")]


def judge_firsts(
    look: Look,
    layout: list[int],
    others: list[int],
    reports: list[dict[str, Any]],
    names: list[list[str]],
    firsts: str,
    ahead: list[set[int]],
) -> None:
    """Exactly those that are to go first do, where some did: their number and their ranks are not for the code."""
    went = {rank for rank in range(len(reports)) if loads_ahead(reports[rank])}
    waits = [one for one in names if "barrier" in one]
    unended = [
        rank
        for rank in layout
        if "barrier" in names[rank][: names[rank].index("loaded") if "loaded" in names[rank] else None]
        and "barrier" not in names[rank][: names[rank].index("load")]
    ]
    if unended and waits:
        raise Diagnosis(
            "barrier-before-loaded",
            saw=f"{firsts}: rank {unended[0]} came to the barrier before its load() had ended.",
            means="The barrier lets the others go on when the first one has come to it: load() must be over then.",
            look=look(r"submit\(|Thread\(|\.start\(|Process\(", r"barrier\("),
        )
    if went == {0, *layout} and 0 in others:
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{firsts}, but rank 0 called load() before the barrier too.",
            means="Rank 0 is a process like all others here: is_first alone says who goes first.",
            look=look(r"rank"),
        )
    if not went and 0 in others and ahead[1] == {0}:
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{firsts}, but rank {layout[0]} waited in the barrier, and then all loaded at once.",
            means="Where each node has its own disk, rank 0 cannot download for the others: is_first says who.",
            look=look(r"rank"),
        )
    if late := [rank for rank in layout if went and rank not in went and went < set(layout)]:
        raise Diagnosis(
            "not-every-first",
            saw=f"{firsts}: {rank_list(late)} waited in the barrier, and then loaded together with "
            f"{rank_list(others)}.",
            means="Each file system has its own first process: all that is_first names load before the barrier.",
            look=look(r"\.index\(|\b(min|max|next)\(|argmax|\[0\]", r"rank", r"load\(\)"),
        )
