"""Judges load_once(): who loads when, what comes back, and what becomes of an error."""

import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.base.words import rank_list
from lab.checks.common.look import Look, at
from lab.checks.common.look_values import falls_off
from lab.checks.common.report import expect, expect_as_many, remembered
from lab.checks.data.judge_nccl import SENDING, barrier_of_some, handed_on, judge_firsts, judge_left, loads_ahead
from lab.grading.diagnosis import Diagnosis
from lab.grading.explain import rank_from_torchrun
from lab.grading.parts import compared, part
from lab.ranks.reports import GroupResult

RECEIVE, MESSAGES = r"\b(i?recv|recv_object_list)\(", r"\b(i?(recv|send)|(recv|send)_object_list)\("
OBJECTS = r"_object"
FILES = r"\bexists\(|is_file\(|isfile\(|\bglob\(|listdir\("
LOCKS = r"flock|lockf|lock\(|\.acquire\("
IN_ORDER = "the first before the others"


def judge_waiting(look: Look, result: GroupResult, layouts: list[list[int]]) -> None:
    """Some ranks wait in a barrier for ever: it was not for everybody."""
    if not any(report.error and report.error.type == "LeftBehindError" for report in result.reports):
        return
    back = [report.rank for report in result.reports if report.status in ("ok", "raised")]
    waiting = [report for report in result.reports if report.rank not in back]
    if not waiting:
        return
    frame = waiting[0].student_frame
    place = f" at data.py:{frame.line}  {frame.text}" if frame else " in load_once()"
    numbers = [report.rank for report in waiting]
    verb = "waits" if len(numbers) == 1 else "wait"
    met = {report.error.message for report in result.reports if report.error and report.status == "raised"}
    look_at = at("data.py", frame.line, frame.text) if frame else look(r"barrier")
    if met and not met & {"", "0"}:
        raise Diagnosis(
            "barrier-in-branch",
            saw=f"{rank_list(numbers)}{which(layouts, numbers)} {verb} for ever{place}, in a barrier more than "
            f"{rank_list(back)} came to.",
            means="A barrier opens only when every rank has come to it: all must come to it equally often.",
            look=look_at
            if frame and look.in_branch(r"barrier", line=frame.line)
            else branch_barrier(look, look_at),
        )
    judge_left(look, waiting[0], [report for report in result.reports if report.rank in back])
    raise Diagnosis(
        "barrier-in-branch",
        saw=f"{rank_list(numbers)}{which(layouts, numbers)} {verb} for ever{place}; "
        f"{rank_list(back)} went past without a barrier.",
        means="A barrier opens only when every rank has come to it, so it must not stand in one branch only.",
        look=look_at,
    )


def which(layouts: list[list[int]], ranks: list[int]) -> str:
    return " (which went first)" if any(set(layout) == set(ranks) for layout in layouts) else ""


def branch_barrier(look: Look, otherwise: str) -> str:
    """A barrier that not all ranks come to, where there is one besides that in which they wait."""
    return look.in_branch(r"barrier\(") or otherwise


def judge_messages(look: Look, result: GroupResult, layouts: list[list[int]]) -> None:
    """Some ranks wait for a message that nobody sends them: the one that waits for its own gets an error."""
    errors = [report.error for report in result.reports if report.error is not None]
    frames = [error.student_frame for error in errors if error.student_frame]
    sends = any(look.mentions(name) for name in ("send", "isend", "send_object_list"))
    if not any(re.search(MESSAGES, searchable(frame.text)) for frame in frames):
        return
    saw = f"{rank_list(layouts[0])} goes first; others wait for a message, and "
    if sends:
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{saw}none came from the rank that they asked.",
            means="Which rank goes first, and how many do, differs from machine to machine: is_first says it.",
            look=look(RECEIVE, MESSAGES),
        )
    raise Diagnosis(
        "message-missing",
        saw=f"{saw}no rank sends one.",
        means="Every receive needs its send on the other side. A barrier needs neither: all ranks call it.",
        look=look(RECEIVE),
    )


def judge_loading(look: Look, reports: Sequence[Any], layouts: list[list[int]]) -> None:
    """Raise the diagnosis of the first thing that is wrong. A layout has the ranks that go first."""
    event = {"what": str, "time": float}
    expect(
        reports,
        [
            {
                "events": [event],
                "own_result": bool,
                "remembered": bool,
                "type": str,
                "slept": bool,
                "not_awaited": bool,
                "partial": bool,
                "is_load": bool,
            }
        ],
    )
    expect_as_many(reports, len(layouts))
    ahead = [{rank for rank, report in enumerate(reports) if loads_ahead(report[number])} for number in (0, 1)]
    for number, layout in enumerate(layouts):
        judge_layout(look, layout, [report[number] for report in reports], ahead)


def judge_layout(look: Look, layout: list[int], reports: list[dict[str, Any]], ahead: list[set[int]]) -> None:
    """Args: `ahead` are the ranks that load ahead of a barrier, in each layout."""
    firsts = rank_list(layout) + (" goes first" if len(layout) == 1 else " go first, one for each file system")
    names = [[event["what"] for event in report["events"]] for report in reports]
    others = [rank for rank in range(len(reports)) if rank not in layout]
    compared(f"{firsts}: calls of load()", [one.count("load") for one in names], 1)
    with part("everybody loads once", after=[IN_ORDER]):
        judge_counts(look, [*layout, *others], reports, names, firsts)
    with part(IN_ORDER):
        judge_firsts(look, layout, others, reports, names, firsts, ahead)
        judge_order(look, layout, others, reports, names, firsts)


def judge_counts(
    look: Look, ranks: list[int], reports: list[dict[str, Any]], names: list[list[str]], firsts: str
) -> None:
    """Each rank has called load() once, and returned what came of it."""
    if kept := [rank for rank in ranks if reports[rank]["remembered"]]:
        raise remembered(
            look, f"{firsts}: on rank {min(kept)} load_once() returned what an earlier call had loaded."
        )
    idle = [rank for rank in ranks if "load" not in names[rank]]
    sent = handed_on(look) or look(SENDING)
    if idle and re.search(OBJECTS, searchable(sent)):
        raise Diagnosis(
            "others-do-not-load",
            saw=f"{firsts}: {rank_list(idle)} never called load().",
            means="The disk is what the processes share: sending a data set around costs memory and time.",
            look=sent,
        )
    for rank in ranks:
        count = names[rank].count("load")
        if count > 1:
            raise Diagnosis(
                "loads-twice",
                saw=f"{firsts}: rank {rank} called load() {count} times.",
                means="Reading and decoding a data set takes minutes on a real one; once is enough.",
                # What is loaded again where it is false, as an empty data set is.
                look=look(r"\bor\s+load\(", r"^if\s+not\s+(?!is_first)\w+\s*:", r"load\(\)"),
            )
        if count == 0 and reports[rank]["is_load"]:
            raise Diagnosis(
                "load-not-called",
                saw=f"{firsts}: rank {rank} never called load(): load_once() returned the function itself.",
                means="Without () a function is only named, and nothing is called: write load().",
                look=look(r"\breturn\b.*\bload\b(?!\()", r"=.*\bload\b(?!\()", r"\breturn\b"),
            )
        if count == 0 and reports[rank]["type"] == "NoneType":
            raise Diagnosis(
                "others-get-none",
                saw=f"{firsts}: rank {rank} never called load() and got None.",
                means="Every process needs the data set; only the download is for one of them.",
                look=falls_off(look) or look(r"\breturn\b", r"load\(\)"),
            )
        if count == 0:
            raise Diagnosis(
                "others-do-not-load",
                saw=f"{firsts}: rank {rank} never called load().",
                means="The disk is what the processes share: sending a data set around costs memory and time.",
                look=handed_on(look) or look(SENDING, r"load\(\)"),
            )
        if not reports[rank]["own_result"]:
            kind = reports[rank]["type"]
            raise Diagnosis(
                "nothing-returned" if kind == "NoneType" else "result-not-returned",
                saw=f"{firsts}: rank {rank} called load(), but load_once() returned "
                + ("None." if kind == "NoneType" else f"a {kind}."),
                means="The caller needs what load() gave.",
                look=look(r"^load\(\)$", r"\breturn\b", r"load\(\)"),
            )


def judge_order(
    look: Look,
    layout: list[int],
    others: list[int],
    reports: list[dict[str, Any]],
    names: list[list[str]],
    firsts: str,
) -> None:
    times = [{event["what"]: event["time"] for event in report["events"]} for report in reports]
    starts, ends = [one["load"] for one in times], [one.get("loaded", float("inf")) for one in times]
    early = [rank for rank in others if starts[rank] < max(ends[first] for first in layout)]
    if not early:
        return
    load_line, barrier_line = look(r"load\(\)"), look(r"barrier", r"load\(\)")
    after = [rank for rank, events in enumerate(names) if "barrier" in events[: events.index("load")]]
    if 0 in others and after == list(range(1, len(reports))):
        asked = "" if look.mentions("is_first") else ": load_once() never asks is_first"
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{firsts}, but rank 0 loaded before the others{asked}.",
            means="Where each node has its own disk, rank 0 cannot download for the others: is_first says who.",
            look=look(r"rank"),
        )
    if after == layout:
        raise Diagnosis(
            "others-go-first",
            saw=f"{firsts}, but {rank_list(others)} loaded before.",
            means="The processes that should wait all download at once, and the first one finds the work done.",
            look=look(r"\bif not is_first\b", r"load\(\)"),
        )
    if any(report["not_awaited"] for report in reports):
        raise Diagnosis(
            "barrier-not-awaited",
            saw=f"{firsts}: rank {early[0]} called load() before the first one's had ended, while a barrier was "
            "on its way.",
            means="With async_op=True a barrier returns at once; it holds nobody up before its wait().",
            look=look(r"async_op", r"barrier"),
        )
    if after == list(range(len(reports))):
        raise Diagnosis(
            "barrier-before-load",
            saw=f"{firsts}: all ranks met at a barrier, and then all of them loaded at once.",
            means="The barrier must stand between the first one's load() and the others'.",
            look=barrier_line,
        )
    saw = f"{firsts}: rank {early[0]} called load() before the first one's load() had ended."
    passed = {rank for rank in early if "barrier" in names[rank][: names[rank].index("load")]}
    if any(report["partial"] for report in reports):
        raise barrier_of_some(look, f"{saw[:-1]}: it had only waited for a group of some ranks.")
    if not passed and "def " not in (asked_variable := look(r"environ|getenv|get_node_local_rank")):
        raise rank_from_torchrun(saw, asked_variable)
    if not passed and "def " not in (file := look(FILES)):
        raise Diagnosis(
            "file-instead-of-barrier",
            saw=f"{saw[:-1]}: it had looked for a file only.",
            means="A file may be left of the run before, and another node never sees it: wait in a barrier.",
            look=file,
        )
    if not passed and "def " not in (word := look(r"broadcast|scatter")):
        raise Diagnosis(
            "word-of-another-rank",
            saw=f"{saw[:-1]}: it had waited for a word of another rank.",
            means="It waits for the rank that gives it, which need not have waited: a barrier is for every rank.",
            look=word,
        )
    if not passed and "def " not in (lock := look(LOCKS)):
        raise Diagnosis(
            "lock-instead-of-barrier",
            saw=f"{saw[:-1]}: a lock is for whoever comes first.",
            means="A lock keeps them apart, but in any order, and on one node only: is_first says who goes first.",
            look=lock,
        )
    if any(reports[rank]["slept"] for rank in early) and not passed:
        raise Diagnosis(
            "sleep-instead-of-barrier",
            saw=f"{saw[:-1]}: it had only slept.",
            means="Nobody knows how long a download takes: a barrier opens when the first one has come to it.",
            look=look(r"sleep\(", r"load\(\)"),
        )
    if any("barrier" in events for events in names) or not look.mentions("is_first"):
        raise Diagnosis(
            "every-rank-downloads",
            saw=saw,
            means="All processes download and unpack into the same folder at once, over each other's files.",
            look=load_line,
        )
    raise Diagnosis(
        "no-barrier",
        saw=saw,
        means="Nothing makes the others wait, so they find half a file, or none.",
        look=barrier_line,
    )
