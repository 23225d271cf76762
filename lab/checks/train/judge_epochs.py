"""Judges an epoch of training: its order, its batches, the mean loss that came back, and what is recorded."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

from lab.base.words import one_line, ordinal
from lab.checks.common.judge_left import (
    LEFT,
    judge_asked,
    judge_left,
    judge_pending,
    judge_swallowed,
    judge_unwrapped,
)
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import first_of
from lab.checks.common.look_values import passed_over
from lab.checks.common.report import ERROR, expect, expect_as_many, expect_returned, numbers
from lab.checks.common.syntax import computed_for
from lab.checks.common.tensors import close, number
from lab.checks.train.judge_rarer import judge_mean
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

CALL = {"samples": [int], "training": bool, "wrong": str, "taken": int}
EPOCH = {
    "type": str, "value": (float, None), "told": [int], "used": [int], "calls": [CALL], "by_run": bool,
    "taken": int, "lost": int, "pending": int, "left": LEFT,
}  # fmt: skip

EVERY_BATCH, EPOCH_MEAN = "every batch, in a new order", "the mean over the ranks"


def judge_epochs(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    """Args: `given` is what the ranks received."""
    rest = {"elsewhere": str, "line": int, "asked": str, "unwrapped": (None, ERROR), "swallowed": dict}
    expect(reports, {"epochs": [EPOCH], **rest})
    whole, reports = reports, [report["epochs"] for report in reports]
    expect_as_many(reports, len(given["epochs"]))
    seen = [sum(len(call["samples"]) for call in report[0]["calls"]) for report in reports]
    compared("samples in an epoch", seen, given["samples"], each=True)
    with part(EVERY_BATCH):
        for rank, report in enumerate(reports):
            judge_steps_of(look, rank, report, given["samples"][rank])
        judge_sampler(look, reports, given["epochs"])
    with part(EPOCH_MEAN):
        for own in reports:
            for epoch in own:
                judge_type(look, epoch)
        judge_pending(look, max(epoch["pending"] for own in reports for epoch in own), "the sums")
        for i in range(len(given["epochs"])):
            judge_mean(look, [report[i]["value"] for report in reports], i, given)
        judge_device(look, whole[0]["elsewhere"], whole[0]["line"])
        for i in range(len(given["epochs"])):
            judge_left(look, [report[i]["left"] for report in reports])
        for report in whole:
            expect([list(report["swallowed"].values())], [str])
            for what, instead in report["swallowed"].items():
                judge_swallowed(look, instead, one_line(what, 40))
            judge_asked(look, report["asked"])
            judge_unwrapped(look, report["unwrapped"])


def judge_device(look: Look, elsewhere: str, line: int) -> None:
    if elsewhere:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with run.device on a GPU (here only pretended): {elsewhere}.",
            means="nccl reduces tensors on GPUs only: torch.zeros and the like need device=run.device.",
            look=look.made_before(line)
            or look(
                *([] if "nobody" in elsewhere else [r"torch\.(zeros|ones|tensor|full|empty|stack)(?!.*device)"]),
                r"reduce|gather",
            ),
        )


def judge_steps_of(look: Look, rank: int, report: Sequence[dict[str, Any]], samples: int) -> None:
    """In each epoch every sample once, in training mode, through train_step."""
    loop = look(r"\bfor\b")
    for epoch in report:
        if wrong := next((call["wrong"] for call in epoch["calls"] if call["wrong"]), ""):
            raise Diagnosis(
                "wrong-arguments",
                saw=f"train_step() got {one_line(wrong, 120)}.",
                means="Its arguments are model, optimizer, images, labels, run, in this order.",
                look=look(r"\btrain_step\("),
            )
        seen = [sample for call in epoch["calls"] for sample in call["samples"]]
        if not seen:
            raise Diagnosis(
                "no-train-step",
                saw="train_one_epoch() did not call train_step().",
                means="The step is a function of its own, so that it can be captured or replaced as a whole.",
                look=look(r"cross_entropy|\bmodel\(", r"\bfor\b"),
            )
        if not all(call["training"] for call in epoch["calls"]):
            raise Diagnosis(
                "not-in-training-mode",
                saw=f"the model came in evaluation mode, as from evaluate(); rank {rank} took its steps in it.",
                means="Dropout and BatchNorm behave differently there: model.train() belongs before the steps.",
                look=look.under(r"\.train\(") or look(r"\.train\b|\.eval\b", r"\bfor\b"),
            )
        if len(seen) < samples or len(set(seen)) < samples:
            raise Diagnosis(
                "batches-left-out",
                saw=f"in one epoch rank {rank} trained on {len(set(seen))} of its {samples} samples.",
                means="An epoch is one pass over all of them.",
                look=passed_over(look, epoch["lost"], r"\btrain_step\(") or loop,
            )
        if len(seen) > samples:
            raise Diagnosis(
                "batches-repeated",
                saw=f"in one epoch rank {rank} took {len(seen)} samples, but it has {samples}.",
                means="An epoch is one pass over all of them.",
                look=loop,
            )
        if not epoch["by_run"]:
            raise Diagnosis(
                "run-batches-not-used",
                saw="train_one_epoch() went over the loader itself, not over run.batches(loader).",
                means="It moves images to the device, and counts steps: for --accumulate, saving and resuming.",
                look=loop,
            )
        judge_taken(look, rank, epoch)


def judge_taken(look: Look, rank: int, epoch: dict[str, Any]) -> None:
    """Each batch is taken from the run once, when the step before it is over."""
    calls, taken = epoch["calls"], epoch["taken"]
    place = look(r"\bbatches\(", r"\bfor\b")
    for done, call in enumerate(calls):
        if call["taken"] > done + 1:
            raise Diagnosis(
                "batches-taken-ahead",
                saw=f"rank {rank} had taken {call['taken']} batches from run.batches() when it began its "
                f"{ordinal(done + 1)} train_step().",
                means="Clock and --accumulate of the run need the step before the next batch; a list holds all.",
                look=place,
            )
    if taken > len(calls):
        raise Diagnosis(
            "batches-repeated",
            saw=f"in one epoch rank {rank} took {taken} batches from run.batches(), for {len(calls)} steps.",
            means="It counts and times each pass as an epoch of its own: go through it once.",
            look=look(r"\bbatches\(", last=True),
        )


NOT_TOLD = "Every epoch comes in the same order: the sampler shuffles by seed and the epoch it is told."


def judge_sampler(look: Look, reports: Sequence[Sequence[dict[str, Any]]], epochs: Sequence[int]) -> None:
    """The sampler knows the epoch before its order is used.

    By what number is up to the student, as long as each epoch has its own, the same on every rank and whenever it
    is run: epoch - 1 is as good. The last epoch is the first one again, as in a run that is continued there.

    Args:
        reports: [rank][epoch].
    """
    place = look(r"set_epoch", r"\bfor\b")
    everything = [epoch["told"] for report in reports for epoch in report]
    for rank, report in enumerate(reports):
        if not any(epoch["told"] for epoch in report):
            where = f" on rank {rank}" if any(everything) else ""
            raise Diagnosis(
                "no-set-epoch",
                saw=f"in epochs {epochs[0]} and {epochs[1]} sampler.set_epoch() was not called{where}.",
                means=NOT_TOLD,
                look=place,
            )
        judge_told(look, place, [epoch["told"] for epoch in report], [epoch["used"] for epoch in report], epochs)
    for i, epoch in enumerate(epochs):
        by_rank = [report[i]["told"] for report in reports]
        if any(told != by_rank[0] for told in by_rank):
            got = ", ".join(f"{numbers(told) or 'nothing'} on rank {rank}" for rank, told in enumerate(by_rank))
            raise Diagnosis(
                "set-epoch-by-rank",
                saw=f"in epoch {epoch} sampler.set_epoch() got {got}.",
                means="All ranks deal from one order, each another part: with orders of their own, parts overlap.",
                look=place,
            )


def judge_told(
    look: Look, place: str, told: list[list[int]], used: list[list[int]], epochs: Sequence[int]
) -> None:
    """What one rank's sampler was told in each epoch, and with which of these numbers it was used."""
    wrong = wrong_number(told, epochs)
    if wrong is None and used[0] == used[-1] and wrong_number(used, epochs) is None:
        return
    if (condition := look.under(r"set_epoch\(")) and not all(told):
        raise Diagnosis(
            "no-set-epoch",
            saw=f"in epoch {epochs[told.index([])]} sampler.set_epoch() was not called.",
            means=NOT_TOLD,
            look=condition,
        )
    if wrong is None and told[0] == told[-1]:
        raise Diagnosis(
            "set-epoch-too-late",
            saw=f"in epoch {epochs[0]} the loader began before sampler.set_epoch({numbers(told[0])}) was called.",
            means="The order is drawn when the loop over the loader begins: this epoch still has an older one.",
            look=place,
        )
    if wrong is not None and all(told):
        one, other = wrong
        raise Diagnosis(
            "set-epoch-constant",
            saw=f"in epochs {epochs[one]} and {epochs[other]} sampler.set_epoch() got the same {told[one][0]}.",
            means="The same number gives the same order: it must be the epoch.",
            look=place,
        )
    raise Diagnosis(
        "set-epoch-wrong-number",
        saw=f"in epochs {numbers(epochs)} sampler.set_epoch() got "
        f"{', '.join(numbers(told_now) or 'nothing' for told_now in told)}.",
        means="It must be told the epoch: a run that is continued there would see another order than before.",
        look=place,
    )


def wrong_number(told: Sequence[Sequence[int]], epochs: Sequence[int]) -> tuple[int, int] | None:
    """The places of two epochs that are told apart by nothing; None if there are none."""
    pairs = combinations(range(len(epochs)), 2)
    return next(
        (p for p in pairs if epochs[p[0]] != epochs[p[1]] and not set(told[p[0]]).isdisjoint(told[p[1]])), None
    )


def judge_type(look: Look, epoch: dict[str, Any]) -> None:
    place = look(r"\breturn\b")
    expect_returned(look, epoch["type"], "The mean loss of the epoch is what is printed and recorded.", place)
    if epoch["value"] is None:
        tensor = epoch["type"] in ("Tensor", "Parameter")
        raise Diagnosis(
            "tensor-returned" if tensor else "not-a-number",
            saw=f"train_one_epoch() returned a {epoch['type']}, not a float.",
            means="Records and CSV files need a number; here, once an epoch, .item() costs nothing."
            if tensor
            else "The caller needs the mean loss, one number.",
            look=place,
        )


GIVEN = ("train_one_epoch", "evaluate")  # what gives the figures of an epoch


def judge_numbers(look: Look, events: Sequence[dict[str, Any]], given: dict[str, Any], ranks: int) -> None:
    """Each epoch's figures, in the right places."""
    names = ("train_loss", "loss", "accuracy")
    records = [event for event in events if event["what"] == "record"]
    for i, record in enumerate(records):
        right, got = [given[name][i] for name in names], record["numbers"]
        wrong = [
            place for place, (one, value) in enumerate(zip(got, right, strict=False)) if not close(one, value)
        ]
        if len(got) == 3 and not wrong:
            continue
        percent = len(got) == 3 and close(got[2], 100 * right[2])
        summed = any(close(one, ranks * value) for one, value in zip(got, right, strict=False))
        divided = any(close(ranks * one, value) for one, value in zip(got, right, strict=False))
        reduced = look(r"reduce|gather") if summed else ""
        place = wrong[0] + 1 if wrong else 1
        raise Diagnosis(
            "wrong-numbers-recorded",
            saw=f"epoch {given['epochs'][i]} had training loss, validation loss, accuracy "
            f"{', '.join(map(number, right))}; recorded were {', '.join(map(number, got))}.",
            means="The accuracy is a fraction between 0 and 1; only people are shown percent."
            if percent
            else "It is a mean over all ranks already: added up over them, it is as many times too large."
            if summed
            else "It is a mean over all ranks already: divided by their number, it is as many times too small."
            if divided
            else "run.record takes the epoch, the training loss, the validation loss and the accuracy.",
            look=(reduced if line_of(reduced) else "")
            or first_of(look, partial(computed_for, function="record", position=place, plain=GIVEN))
            or look(r"record\("),
        )
