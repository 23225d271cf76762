"""Checks of section 3: who loads first, which samples each rank draws, and validation without a gap."""

import random
import secrets
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.base.words import rank_list
from lab.checks.common.look import Look, at
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT
from lab.checks.data.draw import Drawn
from lab.checks.data.judge_arguments import judge_arguments, judge_idle
from lab.checks.data.judge_sampling import judge_drawing
from lab.checks.data.judge_validation import FILLER_SHAPE, filler_place, judge_validation
from lab.checks.data.observe import draw_epochs, draw_validation, fail_to_load, watch_loading
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

# 3.1 --------------------------------------------------------------------------------------------------------


@check("3.1", "every process loads, the first one of each file system before the others")
def loads_once(group: Group) -> None:
    # One file system whose first process is not rank 0, and two file systems.
    layouts = [[random.randrange(1, 4)], [0, random.choice([1, 2, 3])]]
    look = Look(group.code, "data.py", "load_once")
    result = group.report(Order(watch_loading, 4, {"layouts": layouts}))
    if any(report.error and report.error.type == "LeftBehindError" for report in result.reports):
        judge_waiting(group, look, result, layouts)
    if not result.ok:
        group.end(result)
    reports = result.values
    event = {"what": str, "time": float}
    expect(reports, [{"events": [event], "own_result": bool, "type": str}])
    expect_as_many(reports, len(layouts))
    for number, layout in enumerate(layouts):
        judge_loading(look, layout, [report[number] for report in reports])

    message = f"no space left on device {secrets.token_hex(4)}"
    failed = group.observe(Order(fail_to_load, 1, message))
    expect(failed, {"error": (None, ERROR), "calls": int})
    error = failed[0]["error"]
    if error is None or ("OSError" not in error["bases"] and message not in error["message"]):
        instead = "nothing" if error is None else error_text(error)
        raise Diagnosis(
            "error-swallowed",
            saw=f"load() raised OSError: {message}; out of load_once() came {instead}.",
            means="The real reason is lost: a full disk, a missing folder.",
            look=look(r"except"),
        )
    if failed[0]["calls"] > 1:
        raise Diagnosis(
            "load-retried",
            saw=f"load() raised OSError: {message}; load_once() called it {failed[0]['calls']} times.",
            means="What failed may have left half a file, and nobody waits for a second try: let the error end "
            "the job.",
            look=look(r"except", r"load\(\)", last=True),
        )


def judge_waiting(group: Group, look: Look, result: Any, layouts: list[list[int]]) -> None:
    """Some ranks wait in a barrier for ever: it was not for everybody."""
    back = [report.rank for report in result.reports if report.status in ("ok", "raised")]
    waiting = [report for report in result.reports if report.rank not in back]
    if not waiting:
        group.end(result)
    frame = waiting[0].student_frame
    place = f" at data.py:{frame.line}  {frame.text}" if frame else " in load_once()"
    numbers = [report.rank for report in waiting]
    verb = "waits" if len(numbers) == 1 else "wait"
    first = next((layout for layout in layouts if set(layout) == set(numbers)), None)
    which = " (which went first)" if first else ""
    raise Diagnosis(
        "barrier-in-branch",
        saw=f"{rank_list(numbers)}{which} {verb} for ever{place}; {rank_list(back)} went past without a barrier.",
        means="A barrier opens only when every rank has come to it, so it must not stand in one branch only.",
        look=at("data.py", frame.line, frame.text) if frame else look(r"barrier"),
    )


def judge_loading(look: Look, layout: list[int], reports: list[dict[str, Any]]) -> None:
    firsts = rank_list(layout) + (" goes first" if len(layout) == 1 else " go first, one for each file system")
    names = [[event["what"] for event in report["events"]] for report in reports]
    others = [rank for rank in range(len(reports)) if rank not in layout]
    for rank in [*layout, *others]:
        count = names[rank].count("load")
        if count > 1:
            raise Diagnosis(
                "loads-twice",
                saw=f"{firsts}: rank {rank} called load() {count} times.",
                means="Reading and decoding a data set takes minutes on a real one; once is enough.",
                look=look(r"load\(\)"),
            )
        if count == 0 and reports[rank]["type"] == "NoneType":
            raise Diagnosis(
                "others-get-none",
                saw=f"{firsts}: rank {rank} never called load() and got None.",
                means="Every process needs the data set; only the download is for one of them.",
                look=look(r"\breturn\b", r"load\(\)"),
            )
        if count == 0:
            raise Diagnosis(
                "others-do-not-load",
                saw=f"{firsts}: rank {rank} never called load().",
                means="The disk is what the processes share: sending a data set around costs memory and time.",
                look=look(r"load\(\)", r"broadcast|gather|scatter"),
            )
        if not reports[rank]["own_result"]:
            kind = reports[rank]["type"]
            raise Diagnosis(
                "nothing-returned" if kind == "NoneType" else "result-not-returned",
                saw=f"{firsts}: rank {rank} called load(), but load_once() returned "
                + ("None." if kind == "NoneType" else f"a {kind}."),
                means="The caller needs what load() gave.",
                look=look(r"\breturn\b", r"load\(\)"),
            )
    judge_order(look, layout, others, reports, names, firsts)


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
        raise Diagnosis(
            "rank-0-instead-of-is-first",
            saw=f"{firsts}, but rank 0 loaded before the others.",
            means="Where every node has its own disk, rank 0 cannot download for the other nodes.",
            look=look(r"rank"),
        )
    if after == layout:
        raise Diagnosis(
            "others-go-first",
            saw=f"{firsts}, but {rank_list(others)} loaded before.",
            means="The processes that should wait all download at once, and the first one finds the work done.",
            look=load_line,
        )
    if after == list(range(len(reports))):
        raise Diagnosis(
            "barrier-before-load",
            saw=f"{firsts}: all ranks met at a barrier, and then all of them loaded at once.",
            means="The barrier must stand between the first one's load() and the others'.",
            look=barrier_line,
        )
    saw = f"{firsts}: rank {early[0]} called load() before the first one's load() had ended."
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


# 3.2 --------------------------------------------------------------------------------------------------------


DRAWN = {
    "returned": str, "error": (None, ERROR), "set_epoch": bool, "num_workers": [int], "epochs": [[[int]]],
    "options": [dict], "sampler_seed": int, "valid_batch": int, "valid_shuffled": bool,
}  # fmt: skip


@check("3.2", "every rank draws its own samples, in a new order each epoch")
def every_rank_draws_its_own_part(group: Group) -> None:
    look = Look(group.code, "data.py", "get_dataloaders")
    for world_size in (2, 3):
        drawn = Drawn(world_size)
        given = {"configs": drawn.configs, "refused": drawn.refused}
        reports = group.observe(Order(draw_epochs, world_size, given, timeout=LIMIT))
        expect(
            reports,
            {"drawn": [DRAWN], "refused": [{"error": (None, ERROR)}]},
        )
        expect_as_many([report["drawn"] for report in reports], len(drawn.configs))
        expect_as_many([report["refused"] for report in reports], len(drawn.refused))
        for report in reports:
            for result in report["drawn"]:
                expect([list(options.values()) for options in result["options"]], [str])
        results = [
            [result | {"epochs": drawn.counted_from_0(result["epochs"])} for result in report["drawn"]]
            for report in reports
        ]
        judge_idle(look, drawn, results)
        judge_drawing(look, drawn, results)
        judge_arguments(look, drawn, results)
        judge_refusals(look, drawn, [report["refused"] for report in reports])


def judge_refusals(look: Look, asked: Drawn, reports: Sequence[Sequence[dict[str, Any]]]) -> None:
    """A global batch that does not divide, and one larger than the data set, must raise ValueError."""

    for rank, (indivisible, oversized) in enumerate(reports):
        for result, name, what, means, patterns in (
            (
                indivisible,
                "indivisible-batch-accepted",
                f"a global batch of {asked.global_batch + 1} on {asked.world_size} ranks",
                "Rounding it silently trains with another batch size than the one that was asked for.",
                (r"%|divmod", r"//", r"raise"),
            ),
            (
                oversized,
                "oversized-batch-accepted",
                f"a global batch of {asked.global_batch} from {asked.global_batch - 1} samples",
                "The loader has no batch at all: training would end at once, without having learnt anything.",
                (r"len\(train_set\)", r"raise"),
            ),
        ):
            error = result["error"]
            if error is None:
                raise Diagnosis(
                    name, saw=f"{what} was accepted on rank {rank}.", means=means, look=look(*patterns)
                )
            if "ValueError" not in error["bases"]:
                raise Diagnosis(
                    "not-a-value-error",
                    saw=f"{what}: raised {error_text(error)}",
                    means="main.py turns a ValueError into one clear sentence; this would be a traceback.",
                    look=error_place(error, look),
                )


# 3.3 --------------------------------------------------------------------------------------------------------


@check("3.3", "validation counts every sample once, with as many batches on every rank")
def validates_every_sample_once(group: Group) -> None:
    look = Look(group.code, "data.py", "get_dataloaders")
    started = []
    for world_size in (2, 3):
        batch = random.randrange(2, 5)
        sizes = [2 * world_size * batch + 1, world_size * batch - 1, world_size * batch, 1]
        configs = [
            {
                "train": torch.zeros(2 * world_size * batch, dtype=torch.int64),
                "valid": torch.tensor([random.randrange(1, 10) for _ in range(size)]),
                "global_batch_size": world_size * batch,
                "num_workers": 0,
                "seed": random.randrange(1000),
            }
            for size in sizes
        ]
        order = Order(draw_validation, world_size, {"configs": configs}, timeout=LIMIT)
        started.append((group.start(order), configs))
    for report, configs in started:
        with (
            retold(
                "IndexError",
                "past-the-end",
                "Where this rank's samples run out, __getitem__ must give filler: the other ranks have one more.",
            ),
            retold(
                "stack expects each tensor to be equal size",
                "filler-of-another-shape",
                FILLER_SHAPE,
                look=filler_place(look),
            ),
        ):
            reports = group.values(report())
        form = {
            "returned": str,
            "sizes": [int],
            "images": (None, Tensor),
            "labels": [int],
            "types": [str],
            "overwritten": [int],
            "shard": [int],
            "drop_last": bool,
        }
        expect(reports, [form | {"shapes": [[[int]]]}])
        expect_as_many(reports, len(configs))
        for number, config in enumerate(configs):
            judge_validation(look, config, [report[number] for report in reports])
