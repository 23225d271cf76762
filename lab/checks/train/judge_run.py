"""Judges what train() calls, in which order and with which numbers."""

from collections.abc import Sequence
from typing import Any

from lab.base.words import one_line
from lab.checks.common.judge_left import LEFT, judge_left, judge_swallowed, judge_unwrapped
from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_around import kept_at, leads_to
from lab.checks.common.look_values import passed_over
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_returned, numbers
from lab.checks.train.draw import TIRING, tiring_phase
from lab.checks.train.judge_epochs import judge_numbers
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

EVENT = {"what": str, "epoch": int, "on": str, "numbers": [float], "wrong": str}
REPORT = {
    "events": [EVENT], "elsewhere": [EVENT], "problem": str, "type": str, "returned": [int], "item": str,
    "second": [bool], "error": (None, ERROR), "finished": {"error": (None, ERROR), "empty": bool},
    "unwrapped": (None, ERROR), "endured": int, "left": LEFT,
    "swallowed": {"train_one_epoch()": str, "evaluate()": str, "run.record()": str},
}  # fmt: skip


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


EVERY_EPOCH = "Every epoch has its own validation loss and accuracy."
CALLS = "trains, evaluates, records"


def judge_run(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    expect(reports, REPORT)
    lazy = reports[0]["type"] if reports[0]["type"] in ("generator", "map") else ""
    with part(CALLS):
        judge_called(look, [[event["what"] for event in report["events"]] for report in reports], lazy)
    for report in reports:
        with part(CALLS):
            judge_arguments(look, [*report["events"], *report["elsewhere"]])
            judge_epochs(look, report["events"], given["epochs"])
            judge_begin(look, report["events"], given["epochs"])
            events = [event for event in report["events"] if event["what"] != "begin"]
            judge_order(look, events, len(given["epochs"]))
            judge_numbers(look, events, given, len(reports))
        with part("returns the records", after=[CALLS]):
            judge_result(look, report, len(given["epochs"]))
            judge_second(look, report["second"])
            judge_finished(look, report["finished"])
        with part(CALLS):
            judge_rest(look, report)
            judge_unwrapped(look, report["unwrapped"])
            judge_endured(look, report["endured"])
            for what, instead in report["swallowed"].items():
                judge_swallowed(look, instead, what)
    with part(CALLS):
        judge_left(look, [report["left"] for report in reports])
    names = ("train_loss", "loss", "accuracy")
    for i, epoch in enumerate(given["epochs"]):
        recorded = [[e["numbers"] for e in one["events"] if e["what"] == "record"][i : i + 1] for one in reports]
        compared(f"recorded of epoch {epoch}", recorded, [[given[name][i] for name in names]])


def judge_called(look: Look, kinds: list[list[str]], lazy: str) -> None:
    """Each of the three, on every rank. `lazy`: what train() returned, where that is gone through later."""
    for what, call in (
        ("train", "train_one_epoch()"),
        ("evaluate", "evaluate()"),
        ("record", "run.record()"),
    ):
        counts = [own.count(what) for own in kinds]
        if not any(counts) and lazy:
            raise Diagnosis(
                "generator-returned",
                saw=f"train() returned a {lazy}, and had not trained anything by then.",
                means="`yield` makes a generator of it, which nobody goes through: collect the records in a list."
                if lazy == "generator"
                else "A map calls its function when somebody goes through it, and nobody does: make a list.",
                look=look(r"\byield\b" if lazy == "generator" else r"\bmap\("),
            )
        if not any(counts):
            raise Diagnosis(
                {"train": "no-training", "evaluate": "no-evaluation", "record": "no-record"}[what],
                saw=f"train() did not call {call}.",
                means="Without run.record() nothing is printed and no file is written."
                if what == "record"
                else "Each epoch is trained, evaluated and recorded.",
                look=look({"train": r"loss\s*=", "evaluate": r"Evaluation\("}.get(what, r"append\("), r"\bfor\b"),
            )
        if len(set(counts)) > 1:
            raise Diagnosis(
                "not-on-every-rank",
                saw=f"{call} was called {' and '.join(map(str, counts))} times on ranks 0 and 1.",
                means="It is a collective call: ranks that make it wait for those that do not, for ever.",
                look=look(r"rank", r"\bfor\b"),
            )


def judge_endured(look: Look, endured: int) -> None:
    if endured < len(TIRING):
        raise Diagnosis(
            "returned-too-early",
            saw=f"of {len(TIRING)} epochs, train() ended after {endured}, when the losses "
            f"{tiring_phase(endured)}.",
            means="--epochs says how many there are: a run that stops by itself has fewer records than others.",
            look=look.under(r"^(break|return)\b") or look.left_early() or look(r"break|\breturn\b"),
        )


def judge_second(look: Look, second: list[bool]) -> None:
    if len(second) > 1:
        raise Diagnosis(
            "remembers-records",
            saw=f"a second train(), of one epoch, returned {len(second)} records.",
            means="Those of the run before are among them: each call needs a list of its own.",
            look=kept_at(look) or look(r"records?\s*=|records?:", r"append", r"\breturn\b"),
        )


def judge_rest(look: Look, report: dict[str, Any]) -> None:
    """Errors come out, and nothing is left on the CPU."""
    if report["error"] is None or "OSError" not in report["error"]["bases"]:
        instead = "nothing" if report["error"] is None else error_text(report["error"])
        raise Diagnosis(
            "error-swallowed",
            saw=f"train_one_epoch() raised OSError: no space left on device; out of train() came {instead}.",
            means="The real reason is lost, and a rank that goes on alone leaves the others waiting.",
            look=look(r"except|suppress", r"\bfor\b"),
        )
    if report["problem"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with run.device on a GPU (here only pretended): {report['problem']}.",
            means="nccl reduces tensors on GPUs only: torch.tensor and the like need device=run.device.",
            look=look(r"torch\.(zeros|ones|tensor|full|empty|stack)(?!.*device)", r"reduce|gather"),
        )


def judge_epochs(look: Look, events: Sequence[dict[str, Any]], epochs: list[int]) -> None:
    """The epochs come from the run."""
    for what, call in (("train", "train_one_epoch"), ("record", "run.record")):
        seen = [event["epoch"] for event in events if event["what"] == what]
        if seen == epochs:
            continue
        if what == "train" and len(seen) < len(epochs) and seen == epochs[: len(seen)]:
            raise Diagnosis(
                "returned-too-early",
                saw=f"run.epochs() yields {len(epochs)} epochs; train() ended after {len(seen)}.",
                means="A return or break inside the loop ends it before its last round."
                if look.left_early()
                else "Every epoch that it yields is trained, the last one too.",
                look=look.under(r"^(break|return)\b")
                or passed_over(look, 0, r"\btrain_one_epoch\(")
                or look(RETURN),
            )
        if what == "record" and len(seen) != len(epochs):
            raise Diagnosis(
                "not-recorded-every-epoch",
                saw=f"there were {len(epochs)} epochs, but run.record was called {times(len(seen))}.",
                means="Every epoch has a line of figures of its own.",
                look=look.under(r"\.record\(") or look(r"\.record\("),
            )
        raise Diagnosis(
            "wrong-epochs",
            saw=f"run.epochs() yields {numbers(epochs)}; {call} got {numbers(seen)}.",
            means="Epochs count from 1, and the run knows which are still to do when it was continued.",
            look=look(
                r"\bepoch\b\s*[-+]\s*\d|\bepoch\s*=.*[-+]\s*\d", r"\bfor\b" if what == "train" else r"record"
            ),
        )


def judge_arguments(look: Look, events: Sequence[dict[str, Any]]) -> None:
    """What train_one_epoch() and evaluate() were given; which loader, and which epoch, is judged apart."""
    for event in events:
        if event["wrong"].startswith("model.module"):
            raise Diagnosis(
                "wrapper-bypassed",
                saw="train() handed on model.module, and not the model that it was given.",
                means="Past the wrapper nothing is averaged, and under fsdp1 nothing gathered: hand on the model.",
                look=leads_to(look, r"\bmodule\b") or look(),
            )
        if event["wrong"]:
            call = {"train": "train_one_epoch", "evaluate": "evaluate"}.get(event["what"], event["what"])
            raise Diagnosis(
                "wrong-arguments",
                saw=f"{call}() got {one_line(event['wrong'], 120)}.",
                means="Its arguments are model, loader, device: the images go to run.device, where the model is."
                if call == "evaluate"
                else "Its arguments are model, optimizer, loader, epoch, run, all as they came to train().",
                look=(look.source_of("evaluate", "device", 2) if event["wrong"].startswith("the device") else "")
                or look(rf"\b{call}\("),
            )


def judge_begin(look: Look, events: Sequence[dict[str, Any]], epochs: list[int]) -> None:
    """Each epoch is taken from the run when the one before is over."""
    begun = 0
    for event in events:
        begun += event["what"] == "begin"
        if event["what"] == "train" and begun > 1 and event["epoch"] == epochs[0]:
            raise Diagnosis(
                "epochs-taken-ahead",
                saw=f"run.epochs() was asked for {numbers(epochs[:begun])} before epoch {epochs[0]} was trained.",
                means="It sets seed and clock as each epoch begins: all would run as if they were the last.",
                look=look(r"run\.epochs\(", r"\bfor\b"),
            )


def judge_order(look: Look, events: Sequence[dict[str, Any]], epochs: int) -> None:
    """Train, evaluate, record; each on its own loader."""
    kinds = [event["what"] for event in events]
    for what, call, right in (("train", "train_one_epoch", "train"), ("evaluate", "evaluate", "valid")):
        for event in events:
            if event["what"] == what and event["on"] != right:
                other = {"train": "the training loader", "valid": "the validation loader"}
                raise Diagnosis(
                    "evaluated-on-training-set" if what == "evaluate" else "trained-on-validation-set",
                    saw=f"{call}() was given {other.get(event['on'], 'something that is no loader')}.",
                    means="Images a model has trained on say nothing about new ones."
                    if what == "evaluate"
                    else "What is trained on can no longer tell how good the model is.",
                    look=look(r"evaluate\(" if what == "evaluate" else r"train_one_epoch\("),
                )
    if kinds == ["train", "evaluate", "record"] * epochs:
        return
    evaluations = kinds.count("evaluate")
    if evaluations != epochs:
        raise Diagnosis(
            "not-evaluated-every-epoch",
            saw=f"in {epochs} epochs evaluate() was called {times(evaluations)}.",
            means=EVERY_EPOCH,
            look=look.under(r"evaluate\(") or look(r"evaluate\("),
        )
    early = kinds.index("evaluate") < kinds.index("train")
    raise Diagnosis(
        "evaluated-before-training" if early else "wrong-order",
        saw=f"train() called, in this order: {', '.join(kinds[:6])}{', ...' if len(kinds) > 6 else '.'}",
        means="The figures of an epoch are those after its training; each epoch is recorded when it is over.",
        look=look(r"evaluate\(" if early else r"\bfor\b"),
    )


def judge_finished(look: Look, finished: dict[str, Any]) -> None:
    """A run that is continued when its last epoch is done: run.epochs() gives none."""
    error = finished["error"]
    if error is None and finished["empty"]:
        return
    raise Diagnosis(
        "no-epochs-left",
        saw="with no epoch left to do, train() "
        + (f"raised {error_text(error)}" if error else "returned something else than an empty list."),
        means="--resume of a run that is done has none: then there is no last epoch, no best one, and no records.",
        look=error_place(error, lambda: look(r"\breturn\b")) if error else look(r"\breturn\b"),
    )


def judge_result(look: Look, report: dict[str, Any], epochs: int) -> None:
    place = look(r"\breturn\b", r"append", r"\bfor\b")
    expect_returned(look, report["type"], "The caller gets the list of the epochs' records.", place)
    if report["returned"] != list(range(epochs)):
        what = f"a value of type {report['type']}"
        if report["returned"]:
            what = f"a {report['type']} of {len(report['returned'])} items"
        if report["item"] not in ("", "EpochRecord"):
            what += f", the first a {report['item']}"
        raise Diagnosis(
            "not-the-records",
            saw=f"train() returned {what}; expected what run.record() returned in the {epochs} epochs.",
            means="The records of all epochs belong into one list: make it once, before the loop."
            if report["type"] == "list" and set() < set(report["returned"]) < set(range(epochs))
            else "Each epoch's EpochRecord also has its time, images per second and memory.",
            look=look.in_loop(r"=\s*(\[\]|list\(\)|\{\}|dict\(\))$")
            or look.under(r"append\(")
            or look(r"^run\.record\(", r"=\s*\[.*record", r"\breturn\b", r"append", r"\bfor\b"),
        )
