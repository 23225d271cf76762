"""Judges load_once(): who goes first, what it asks of nccl and of a GPU, which a check has not; its errors."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.base.source import searchable
from lab.base.words import rank_list
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers, swallows, with_helpers
from lab.checks.common.report import ERROR, error_text, expect, expect_as_many
from lab.checks.common.syntax import calls_of, names_in
from lab.checks.data.observe_loading import PER_NODE
from lab.grading import hang
from lab.grading.diagnosis import Diagnosis
from lab.ranks.reports import RankReport

NCCL_CALL = {"call": str, "gloo": bool, "cpu": bool, "devices": [int], "src": int, "of": int}

ASKED_AS = {"calls": [NCCL_CALL], "told": bool, "load_error": (None, ERROR), "load_failed": bool}

SENDING = r"broadcast|gather|scatter"

OF_ONE_RANK = (
    "broadcast",
    "broadcast_object_list",
    "scatter",
    "scatter_object_list",
)  # all wait for its src alone


def judge_nccl(look: Look, given: dict[str, Any], reports: Sequence[Any]) -> None:
    """What load_once() asks of a group of nccl can be done there.

    Args:
        given: where the only rank seems to be.
        reports: what it does as the first of its file system, and as another one.
    """
    expect(reports, [ASKED_AS])
    expect_as_many(reports, 2)
    for call in [one for report in reports[0] for one in report["calls"] if not one["gloo"]]:
        if call["call"] == "monitored_barrier":
            raise Diagnosis(
                "barrier-of-gloo-only",
                saw="with nccl, as on GPUs: monitored_barrier() was called, which only gloo has.",
                means="load_once() would raise there. dist.barrier() works with both.",
                look=look(r"monitored_barrier"),
            )
        if call["cpu"]:
            raise Diagnosis(
                "tensor-on-the-cpu",
                saw=f"with nccl, as on GPUs: {call['call']}() was given a tensor on the CPU.",
                means="nccl goes from GPU to GPU, and raises for any other tensor. dist.barrier() needs none.",
                look=look(rf"\b{re.escape(call['call'])}\("),
            )
        if call["devices"] and call["devices"] != [given["gpu"]]:
            raise Diagnosis(
                "barrier-of-another-gpu",
                saw=f"rank {given['rank']} of {given['world_size']}, on GPU {given['gpu']} of its machine's "
                f"{given['gpus']}: {call['call']}(device_ids={call['devices']}).",
                means="A GPU's number counts on its machine, a rank over all: without it, setup()'s is taken.",
                look=look(r"device_ids"),
            )
    judge_group(look, given, reports)
    judge_word(look, given, [call["call"] for call in reports[0][0]["calls"]], reports[0][0]["calls"])


def barrier_of_some(look: Look, saw: str) -> Diagnosis:
    return Diagnosis(
        "barrier-of-some",
        saw=saw,
        means="A barrier holds up the ranks of its group; to all others it is nothing. Take the one of all.",
        look=look(
            r"barrier\((?!\)|async_op|device_ids|timeout)",
            r"(?<!new_)(?<!\w)group\s*=(?!=)",
            r"new_(sub)?group|split_group|mesh",
            r"barrier\(",
        ),
    )


def handed_on(look: Look) -> str:
    """The place of the first collective that is given what load() gave, or what was made of it; "" without one."""
    for node in with_helpers(look):
        loads = node.args.args[0].arg if node.args.args else ""
        held: set[str] = set()
        for part in sorted(ast.walk(node), key=lambda part: getattr(part, "lineno", 0)):
            if isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and part.value:
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                if calls_of(part.value, loads) or names_in(part.value) & held:
                    held |= {name for target in targets for name in names_in(target)}
            elif isinstance(part, ast.Call):
                given = [*part.args, *(keyword.value for keyword in part.keywords)]
                sends = re.search(SENDING, searchable(ast.unparse(part.func)))
                if sends and any(calls_of(one, loads) or names_in(one) & held for one in given):
                    return look.line(part.lineno)
    return ""


def judge_group(look: Look, given: dict[str, Any], reports: Sequence[Any]) -> None:
    """Who waits once waits for every rank: the first one may be on any machine that shares the disk."""
    for report in reports[0]:
        waits = [call for call in report["calls"] if call["call"] != "load"]
        if len(waits) == 1 and 0 < waits[0]["of"] < given["world_size"]:
            raise barrier_of_some(
                look,
                f"rank {given['rank']} of {given['world_size']}, on a machine with {given['gpus']} GPUs, only "
                f"came to {waits[0]['call']}() of a group of {waits[0]['of']}.",
            )


def judge_word(look: Look, given: dict[str, Any], names: list[str], calls: list[dict[str, Any]]) -> None:
    """What follows the first one's load tells of it: a word of another rank, which has not waited, does not."""
    after = calls[names.index("load") + 1 :] if "load" in names else []
    if not after or any(call["call"] not in OF_ONE_RANK or call["src"] in (-1, given["rank"]) for call in after):
        return
    call = after[0]["call"]
    raise Diagnosis(
        "word-of-another-rank",
        saw=f"rank {given['rank']} goes first, and after its load() all wait for rank {after[0]['src']} only, in "
        f"{call}().",
        means="It waits for the rank that gives it, which need not have waited: a barrier is for every rank.",
        look=look(rf"\b{call}\("),
    )


def judge_told(look: Look, given: dict[str, Any], reports: Sequence[Any]) -> None:
    """The error of a collective comes out, and that of load() on the later ranks."""
    for report, who in zip(reports[0], ("the first process", "a later process"), strict=True):
        if not report["told"]:
            raise Diagnosis(
                "error-swallowed",
                saw=f"on {who} the barrier raised DistBackendError, and load_once() came back all the same.",
                means="A barrier that fails has held nobody up: the first one may be dead, and its file a half.",
                look=swallows(look) or look(r"except|suppress", r"barrier"),
            )
        error = report["load_error"]
        if report["load_failed"] and (
            error is None or ("OSError" not in error["bases"] and given["message"] not in error["message"])
        ):
            raise Diagnosis(
                "error-swallowed",
                saw=f"on {who} load() raised OSError: {given['message']}; out of load_once() came "
                f"{'nothing' if error is None else error_text(error)}.",
                means="The real reason is lost: a full disk, a missing folder.",
                look=swallows(look) or look(r"except|suppress", r"load\(\)"),
            )


def judge_failed_load(look: Look, reports: Sequence[Any], message: str) -> None:
    """The error of load(), with this message, comes out as it is, and at once."""
    expect(reports, {"error": (None, ERROR), "calls": int})
    error = reports[0]["error"]
    if error is None or ("OSError" not in error["bases"] and message not in error["message"]):
        instead = "nothing" if error is None else error_text(error)
        raise Diagnosis(
            "error-swallowed",
            saw=f"load() raised OSError: {message}; out of load_once() came {instead}.",
            means="The real reason is lost: a full disk, a missing folder.",
            look=look(r"except"),
        )
    if reports[0]["calls"] > 1:
        raise Diagnosis(
            "load-retried",
            saw=f"load() raised OSError: {message}; load_once() called it {reports[0]['calls']} times.",
            means="What failed may have left half a file, and nobody waits for a second try: let the error end "
            "the job.",
            look=look(r"except", r"load\(\)", last=True),
        )


def judge_left(look: Look, waiting: RankReport, others: Sequence[RankReport]) -> None:
    """The others have left a function by a `return` above the barrier of the one that waits."""
    for frame in reversed(waiting.error.frames if waiting.error else waiting.stack):
        ways = [report.left.get((frame.file, frame.function)) for report in others]
        early = [way for way in ways if way is not None and 0 < way.line < frame.line]
        if Path(frame.file).name != look.name or len(early) < len(others):
            continue
        raise Diagnosis(
            "early-return",
            saw=f"{rank_list([report.rank for report in others])} returned at data.py:{early[0].line}, without "
            f"the barrier of data.py:{frame.line}, in which rank {waiting.rank} waits for ever.",
            means=hang.MEANS["early-return"],
            look=look.line(early[0].line),
        )


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
    alone = {rank for rank in range(len(reports)) if rank % PER_NODE == 0}
    if went == alone != set(layout) and line_of(asked := in_helpers(look, r"(?i)local_?(rank|id)")):
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{firsts}, but {rank_list(sorted(alone))}, each the first of its node, called load() before the "
            "barrier.",
            means="Nodes may share a disk, and then one process is enough: is_first alone says who goes first.",
            look=asked,
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
