"""Judges an evaluation: how the model was run, and the loss and accuracy over all ranks."""

import math
from collections.abc import Sequence
from typing import Any

from lab.base.words import one_line
from lab.checks.common.judge_left import LEFT, judge_asked, judge_left, judge_pending, judge_swallowed
from lab.checks.common.look import Look
from lab.checks.common.look_around import kept_at
from lab.checks.common.look_values import overwritten
from lab.checks.common.report import expect, expect_returned
from lab.checks.common.tensors import close, number
from lab.checks.train.draw import DrawnEvaluation
from lab.checks.train.judge_passes import judge_after, judge_passes, judge_precision
from lab.checks.train.judge_rarer import OVER_SOME, RARER, averaged_at, compared_at, rarer_kind
from lab.checks.train.means import mistake, worked_out
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

REPORT = {
    "type": str, "fields": bool, "types": {"loss": str, "accuracy": str}, "values": dict,
    "passes": [{"images": int, "training": bool, "gradients": bool}], "restored": bool, "gradients": bool,
    "called": int, "pending": int, "left": LEFT,
}  # fmt: skip

LOGITS = "cross_entropy takes the logits as they are, and applies the logarithm of a softmax itself."

MISTAKES = {
    "own": ("no-all-reduce", "Each rank knows only its own part; the sums must be all-reduced."),
    "averages": (
        "average-of-averages",
        "Parts differ in size, so a mean of means is not the mean: add up, all-reduce, divide last.",
    ),
    "filler": ("padding-counted", "Filler carries the label -100; it must not count as a sample."),
    "world size": (
        "divided-by-world-size",
        "The sums over all ranks belong over the number of samples, not of ranks.",
    ),
    "not divided": ("not-divided", "A mean is the sum divided by the number of samples."),
    "batches": ("divided-by-batches", "The sum over samples belongs over the number of samples, not of batches."),
    "means added": (
        "batch-means-added",
        "cross_entropy gives the mean of a batch; to add up samples use reduction='sum'.",
    ),
    "last batch": ("last-batch-only", "All batches count: add up instead of overwriting."),
    "own count": ("count-not-reduced", "The number of samples must be summed over the ranks too."),
    "own total": ("total-not-reduced", "The sum must be all-reduced too, not only the number of samples."),
    "ranks added": ("summed-not-averaged", "all_reduce adds up: reduce sums and counts, and divide afterwards."),
    "in the loop": (
        "reduced-in-loop",
        "After an all-reduce the sums hold all ranks' samples; the next one counts those again. Reduce once.",
    ),
    "percent": ("accuracy-in-percent", "Records keep a fraction between 0 and 1; only people are shown percent."),
    "top k": ("top-k-accuracy", "Accuracy counts an image as right only if its own class is the first of all."),
    "softmax-before-loss": ("softmax-before-loss", LOGITS),
    "log-softmax-missing": ("log-softmax-missing", LOGITS),
    "some ranks": ("ranks-disagree", "Every rank must get the same figures: all_reduce, not reduce."),
}


EXACT, MODE = "exact over all ranks", "evaluation mode, and back"


def judge_evaluation(look: Look, reports: Sequence[Any], wrapper: str, drawn: DrawnEvaluation) -> None:
    expect(reports, {wrapper: REPORT})
    own = [report[wrapper] for report in reports]
    for rank, report in enumerate(own):
        with part(EXACT):
            judge_type(look, rank, report)
        with part(MODE):
            judge_passes(look, rank, report, wrapper, sum(loss.length for loss, _ in drawn.batches[rank]))
    with part(MODE):
        judge_after(look, own)
    with part(EXACT):
        judge_pending(look, max(report["pending"] for report in own), "the sums")
        expect([report["values"] for report in own], {"loss": float, "accuracy": float})
        judge_values(look, own, wrapper, drawn)


def judge_repetition(look: Look, reports: Sequence[Any], drawn: DrawnEvaluation) -> None:
    """An evaluation of the first batches, after others that were right; and one as if on a GPU."""
    expect(reports, {"again": {"values": dict}, "elsewhere": str, "line": int, "asked": str, "swallowed": dict})
    values = [report["again"]["values"] for report in reports]
    expect(values, {"loss": float, "accuracy": float})
    first = [batch[0] for own in drawn.batches for batch in own[:1]]
    right = sum(loss.total for loss in first) / sum(loss.samples for loss in first)
    for rank, value in enumerate(values):
        if not close(value["loss"], right):
            saw = (
                f"a second evaluate(), on other images, gave the loss {number(value['loss'])} on rank {rank}; "
                f"their mean is {number(right)}."
            )
            judge_precision(look, saw, [value], {"loss": right, "accuracy": value["accuracy"]})
            raise Diagnosis(
                "remembers-evaluations",
                saw=saw,
                means="Something is left from the evaluation before: each one has to start from zero.",
                look=kept_at(look)
                or (
                    place if (place := look.kept()) != look() else look(r"zeros|sum|total|loss\s*=", r"\breturn\b")
                ),
            )
    if elsewhere := reports[0]["elsewhere"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"with the model on a GPU (here only pretended): {elsewhere}.",
            means="The loader's batches are on the CPU, and so is what torch.zeros makes without device=device.",
            look=look.made_before(reports[0]["line"])
            or look(
                r"torch\.(zeros|ones|tensor|full|empty)(?!.*device)"
                if "on the CPU" in elsewhere
                else r"reduce"
                if "nobody" in elsewhere
                else r"model\(|\bfor\b",
                r"reduce|gather",
                r"\bfor\b",
            ),
        )
    for report in reports:
        judge_asked(look, report["asked"])
        expect([list(report["swallowed"].values())], [str])
        for what, instead in report["swallowed"].items():
            judge_swallowed(look, instead, one_line(what, 40))
    for wrapper in ("DDP", "FSDP"):
        judge_left(look, [report[wrapper]["left"] for report in reports])


def judge_type(look: Look, rank: int, report: dict[str, Any]) -> None:
    place = look(r"\breturn\b")
    expect_returned(
        look, report["type"], "Every rank gets an Evaluation(loss, accuracy).", place, who=f" on rank {rank}"
    )
    if not report["fields"]:
        raise Diagnosis(
            "not-an-evaluation",
            saw=f"evaluate() returned a {report['type']}, which has no loss and accuracy.",
            means="The caller reads evaluation.loss and evaluation.accuracy.",
            look=place,
        )
    for name, kind in report["types"].items():
        if kind not in ("float", "int", "float64"):
            tensor = kind == "Tensor"
            raise Diagnosis(
                "tensors-returned" if tensor else "not-numbers",
                saw=f"evaluate() returned {name} as a {kind}, not as a float.",
                means="Records and CSV files need numbers: .item() or .tolist() once, after the last batch."
                if tensor
                else "Both are means over all samples: numbers.",
                look=place,
            )


def judge_swapped(
    look: Look, values: Sequence[dict[str, float]], exact: dict[str, float], found: dict[str, tuple[str, str]]
) -> None:
    """What shows in both figures together: they have changed places, or their count is another."""
    saw = next(iter(found.values()))[1]
    if all(close(one["loss"], exact["accuracy"]) and close(one["accuracy"], exact["loss"]) for one in values):
        raise Diagnosis(
            "loss-and-accuracy-swapped",
            saw=saw,
            means="That is the accuracy: Evaluation takes the loss first, and then the accuracy.",
            look=look(r"Evaluation\(", r"\breturn\b"),
        )
    factors = [one[name] / exact[name] for one in values for name in exact if exact[name]]
    unknown = all(kind == "other" for kind, _ in found.values())
    if unknown and factors[0] > 0 and all(close(factor, factors[0]) for factor in factors):
        raise Diagnosis(
            "wrong-count",
            saw=f"{saw} The accuracy is off by the same factor, {number(factors[0])}.",
            means="Both are divided by a number of samples that is another: all of them, without the filler.",
            look=look(
                r"labels?\b.*[<>]=?\s*0\b|\bsum\(\).*[<>]|[<>].*\bsum\(\)|-\s*100\)?\)?\.sum|count|samples|len\("
            ),
        )


def judge_values(look: Look, own: Sequence[dict[str, Any]], wrapper: str, drawn: DrawnEvaluation) -> None:
    found: dict[str, tuple[str, str]] = {}
    exact: dict[str, float] = {}
    possible: dict[str, dict[str, list[list[float]]]] = {}
    for which, name in enumerate(("loss", "accuracy")):
        observed = [report["values"][name] for report in own]
        known = possible[name] = drawn.possible(which)
        exact[name] = known["exact"][0][0]
        kind = mistake(observed, known)
        values = ", ".join(f"rank {rank} {number(value)}" for rank, value in enumerate(observed))
        compared(f"{name} under {wrapper}", observed, exact[name])
        right = number(exact[name])
        saw = f"under {wrapper} evaluate() gave the {name} as: {values}. Over all samples it is {right}."
        if any(map(math.isnan, observed)):
            raise Diagnosis(
                "nan-from-filler",
                saw=saw,
                means="A batch can be nothing but filler, and a mean over no sample is nan: add up sums instead.",
                look=look(r"cross_entropy", r"loss"),
            )
        if kind != "exact":
            found[name] = (kind, saw)
    if not found:
        return
    judge_precision(look, next(iter(found.values()))[1], [report["values"] for report in own], exact)
    rare = None
    of_loss = found.get("loss", ("",))[0]
    if of_loss == "other" or (of_loss == "batches" and overwritten(look)):  # the last may have as many samples
        rare = rarer_kind(look, [report["values"]["loss"] for report in own], drawn.rarer(0))
    if rare is None:
        judge_swapped(look, [report["values"] for report in own], exact, found)
    # One mistake often spoils both: name the kind that explains one of them.
    name = next((n for n, (kind, _) in found.items() if kind != "other"), next(iter(found)))
    kind, saw = found[name]
    if name == "accuracy" and kind == "means added":  # which is said of cross_entropy, and here the loss is right
        kind = "other"
    known_name, means = MISTAKES.get(
        kind,
        (
            "wrong-loss",
            "It is not the mean cross_entropy of all samples: the loss, its sum or the count is another.",
        )
        if name == "loss"
        else ("wrong-accuracy", "It is not the mean over all samples of all ranks, each counted once."),
    )
    pattern = {
        "other": r"cross_entropy|nll|loss" if name == "loss" else r"==|argmax|topk",
        "softmax-before-loss": r"softmax",
        "log-softmax-missing": r"nll",
        "top k": r"topk|sort",
        "filler": r"clamp|(?<!!= )-100|IGNORED|len\(|size|shape",
        "percent": r"(?<!-)\b100\b",
        "means added": r"cross_entropy",
        "world size": r"world_size",
        "not divided": r"\breturn\b",
        "batches": r"len\(|\breturn\b",
        "last batch": r"(?<![+=])=[^=]*(cross_entropy|loss)",
        "averages": r"cross_entropy\((?!.*(reduction|\*))|/=|mean\s*=|^(?!return).*\w\s*/\s*\w",
        "ranks added": r"/=|mean\s*=",
    }.get(kind, r"reduce|gather")
    before = {"filler": [r"clamp", r"len\((?!loader\))|size|shape|numel"]}.get(kind, [])
    after = [r"zeros\("] if kind == "last batch" else []
    observed = [report["values"][name] for report in own]
    added = r"cross_entropy\((?!.*(reduction|\*|/))"
    place = averaged_at(look, observed, possible[name], added) if kind == "averages" else ""
    if kind == "other" and name == "accuracy":
        place = compared_at(look)
    place = place or worked_out(look, *before, pattern, *after)
    # Of so few samples, an accuracy is that of another mistake by chance; a loss is not.
    if (rare is not None and (kind != "filler" or rare[0] == RARER["class 0"][0])) or (
        rare and rare[0].startswith(OVER_SOME)
    ):
        known_name, saw, (means, place) = "wrong-loss", found["loss"][1], rare
    raise Diagnosis(known_name, saw=saw, means=means, look=place)
