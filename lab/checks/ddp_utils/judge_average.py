"""Judges what average_gradients() has left behind: gradients and weights."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import torch

from lab.base.source import searchable
from lab.checks.common.gradients import Verdict, verdict
from lab.checks.common.judge_left import judge_overtaken, judge_pending, judge_swallowed
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers, leads_to, value_outside
from lab.checks.common.look_values import unreached
from lab.checks.common.report import expect
from lab.checks.common.tensors import Tensors, all_close, example, expect_tensors
from lab.checks.ddp_utils.draw import Gradients
from lab.checks.ddp_utils.judge_models import (
    OWN,
    judge_again,
    judge_on_a_node,
    judge_other_types,
    judge_second_model,
    judge_third_model,
)
from lab.checks.ddp_utils.look_average import not_moved_on, waited_alone
from lab.grading.diagnosis import Diagnosis
from lab.grading.explain import rank_from_torchrun
from lab.grading.parts import compared, part

AVERAGED = {
    "weights": dict, "gradients": dict, "pending": int, "overtaken": bool, "frozen": bool,
    "second": dict, "third": dict, "on a node": (None, float), "swallowed": str, "called": bool,
    "again": [dict], "other types": [[float]],
}  # fmt: skip

# Where parts of one flat tensor are taken for gradients.
PLACES = (r"^\w+\s*=.*numel\(", r"^\w+\s*=.*\[.*:.*\]", r"\[.*:.*\]|\.split\(")

SIXTEEN_BITS = r"bfloat16|half|float16"
COLLECTIVE = r"\b(all_reduce|reduce|all_gather|gather|reduce_scatter|broadcast)(_\w+)?\("
ADDED_UP = r"all_reduce\((?!.*AVG)"

MEAN, NOTHING_ELSE = "the mean over the ranks", "nothing else is changed"


def judge_average(look: Look, reports: Sequence[dict[str, Any]], drawn: Gradients) -> None:
    """Raise the diagnosis of the first thing that is wrong."""
    world_size, moved, mean = len(reports), drawn.moved, drawn.mean
    expect(reports, AVERAGED)
    with part(MEAN):
        judge_pending(look, max(report["pending"] for report in reports), "the gradients")
        judge_overtaken(look, any(report["overtaken"] for report in reports), "a gradient")
    observed = [report["weights"] for report in reports]
    with part(NOTHING_ELSE, after=[MEAN]):
        expect_tensors(observed, moved[0])
        if not all(all_close(observed[rank], moved[rank]) for rank in range(world_size)):
            place = look(
                r"DataParallel\(|get_ddp_model\(",
                r"vector_to_parameters\(",
                r"\.data\b|copy_\(|\bp\b\s*[-+*/]?=",
                r"reduce|gather|broadcast",
            )
            fail_for_weights(observed, moved, place)
    gradients = [report["gradients"] for report in reports]
    compared("gradients", gradients, mean)
    with part(MEAN):
        judge_mean(look, gradients, drawn, any(report["called"] for report in reports))
    with part(NOTHING_ELSE):
        judge_frozen(look, any(report["frozen"] for report in reports))
    with part("any model, and infinity kept", after=[MEAN]):
        judge_second_model(
            look, [report["second"] for report in reports], {**mean, OWN: torch.zeros(3)}, drawn.idle
        )
        judge_third_model(look, [report["third"] for report in reports], mean, drawn.idle)
        judge_again(look, [report["again"] for report in reports], mean)
        judge_other_types(look, [report["other types"] for report in reports])
    with part(MEAN):
        judge_on_a_node(look, [report["on a node"] for report in reports])
        judge_swallowed(look, reports[0]["swallowed"], "a collective")


def judge_mean(look: Look, gradients: Sequence[Tensors], drawn: Gradients, called: bool) -> None:
    """Every gradient is there, and the mean over the ranks.

    Args:
        called: whether any collective was.
    """
    world_size, mean = len(gradients), drawn.mean
    gone = [name for name in mean if any(name not in grads for grads in gradients)]
    if gone:
        raise Diagnosis(
            "gradients-gone",
            saw=f"after average_gradients() there is no gradient any more for {', '.join(gone[:3])}"
            + (", ..." if len(gone) > 3 else "."),
            means="optimizer.step() leaves out parameters whose grad is None.",
            look=look(r"grad\s*=\s*None|zero_grad|\bdel\b", r"grad"),
        )
    expect_tensors(gradients, mean)
    found = verdict(gradients, mean, drawn.local)
    if found.kind != "mean":
        if (
            found.kind in ("local", "some parameters")
            and (leaves := look.left_early())
            and look.mentions("all_reduce")
        ):
            fail_for_leaving(found, leaves)
        counted, environ = (
            in_helpers(look, pattern) or value_outside(look, pattern)
            for pattern in (r"device_count", r"environ|getenv")
        )
        if found.kind in ("sum", "world size") and environ:
            raise rank_from_torchrun(found.saw, environ)
        if found.kind == "sum" and counted:
            fail_for_gpus(found, counted)
        if found.kind == "other" and line_of(look(SIXTEEN_BITS)) and all(map(partial(nearly, mean), gradients)):
            found = replace(found, kind="16 bits")
        values = [value for grads in gradients for value in grads.values()]
        if all(bool((value == value.flatten()[0]).all()) for value in values) and any(v.any() for v in values):
            fail_for_elements(look)
        division = r"[/*]=|\bdiv|\bmul|[/*] "
        patterns = {
            "sum": (r"/=|\bdiv_\(",),
            "world size": (rf"\b{found.number}\b", rf"\b{re.escape(f'{1 / max(found.number, 1):.2g}')}", division),
            "some ranks": (r"get_rank\(|\brank\b|\breduce\(", r"\]\s*\*\s*\w"),
            "some parameters": (
                *((r"^\w+\s*\+=", r"\[.*:.*\]") if "something else" in found.saw else ()),  # where a part begins
                r"recurse\s*=\s*False",
                r"\breturn\b|break",
                r"children\(",
                r"\bif\b(?!.*None\s*[])]*\s*:?$)",
                *PLACES,
            ),
            "16 bits": (SIXTEEN_BITS, r"\.to\("),
            "divided twice": (r"\bAVG\b|" + division,),
            "only divided": (division,),
            "factor": (r"clip", division),
            "local": (r"register_\w*hook\(", r"\breturn\s+\w", *PLACES[1:]),
            "other": (r"/\s*\d|\*\s*0?\.\d",),
        }.get(found.kind, ())
        to_one = found.kind == "some ranks" and look(r"\breduce\(")
        if to_one and line_of(to_one):
            fail_for_one_receiver(found, to_one)
        if found.kind == "sum" and in_helpers(look, r"\bAVG\b") and (summed := in_helpers(look, ADDED_UP)):
            fail_for_gradients(found, world_size, True, summed)
        apart = ""
        if found.kind == "other" or (found.kind == "some parameters" and "something else" in found.saw):
            apart = not_moved_on(look)
        elif found.kind == "some parameters" and found.saw.endswith("the sum."):
            apart = waited_alone(look)
        reduced = bool(line_of(look(r"reduce|gather|broadcast")))
        if found.kind in ("local", "only divided") and not called and (never := leads_to(look, COLLECTIVE)):
            fail_for_never(found, unreached(look, never))
        place = apart or look(*patterns, r"all_reduce|reduce|gather|broadcast")
        fail_for_gradients(found, world_size, reduced, place)


def judge_frozen(look: Look, frozen: bool) -> None:
    if frozen:
        raise Diagnosis(
            "frozen-given-a-gradient",
            saw="a parameter with requires_grad=False, which had no gradient, has one after average_gradients().",
            means="The optimizer would change it, by weight decay alone: what is frozen must stay frozen.",
            look=look(r"zeros|new_|\.grad\s*=[^=]", r"grad"),
        )


def fail_for_weights(observed: Sequence[Tensors], before: Sequence[Tensors], where: str) -> NoReturn:
    world_size = len(before)
    total = {name: torch.stack([weights[name] for weights in before]).sum(dim=0) for name in before[0]}
    mean = {name: value / world_size for name, value in total.items()}
    rank = next(r for r in range(world_size) if not all_close(observed[r], before[r]))
    saw = f"on rank {rank} a weight has changed: {example(observed[rank], before[rank])}"
    if all_close(observed[rank], mean) or all_close(observed[rank], total):
        raise Diagnosis(
            "weights-not-gradients",
            saw=f"{saw}, as if the weights were reduced over the ranks.",
            means="What has to be averaged is parameter.grad, not the parameter.",
            look=where,
        )
    raise Diagnosis(
        "weights-changed",
        saw=f"{saw}.",
        means="Only the optimizer's step may change weights; here they must stay as they are.",
        look=where,
    )


def nearly(mean: Tensors, gradients: Tensors) -> bool:
    """Whether these differ from the mean by no more than the rounding of 16 bits."""
    return all(
        bool((gradients[name] - value).abs().max() <= 0.03 * value.abs().max()) for name, value in mean.items()
    )


def fail_for_never(found: Verdict, where: str) -> NoReturn:
    """The lines that would reduce were not reached."""
    raise Diagnosis(
        "not-reduced",
        saw=found.saw,
        means="No collective was called: on no rank was the line reached that is to reduce them.",
        look=where,
    )


def fail_for_gpus(found: Verdict, where: str) -> NoReturn:
    """What the sum was divided by is 1 here."""
    raise Diagnosis(
        "local-number-as-global",
        saw=found.saw,
        means="device_count() counts the GPUs of one node, if it has any; dist.get_world_size() counts all ranks.",
        look=where,
    )


def fail_for_leaving(found: Verdict, leaves: str) -> NoReturn:
    """The loop over the parameters ends before they do."""
    word = "break" if "break" in leaves else "return"
    raise Diagnosis(
        "some-parameters-left-out" if found.kind == "some parameters" else "loop-left-early",
        saw=found.saw,
        means=f"`{word}` ends the loop at that parameter: none after it is averaged. `continue` leaves out one.",
        look=leaves,
    )


def fail_for_elements(look: Look) -> NoReturn:
    raise Diagnosis(
        "mean-of-elements",
        saw="all numbers of a gradient are the same afterwards, in each parameter.",
        means="The mean is over the ranks, element by element: a gradient keeps its shape and its numbers.",
        look=look(r"\bmean\(", r"fill_|full|reduce"),
    )


def fail_for_one_receiver(found: Verdict, where: str) -> NoReturn:
    raise Diagnosis(
        "ranks-disagree",
        saw=found.saw,
        means="dist.reduce gives the sum to the rank dst alone; all_reduce gives it to every rank.",
        look=where,
    )


def fail_for_gradients(found: Verdict, world_size: int, reduced: bool, where: str) -> NoReturn:
    names = {
        "sum": ("summed-not-averaged", f"Added up but not divided: every step is {world_size} times too long."),
        "local": ("not-reduced", "Each rank trains alone; from the first step on their weights differ."),
        "rank 0": ("broadcast-not-averaged", "The other ranks' samples are computed and thrown away."),
        "divided twice": ("divided-twice", "ReduceOp.AVG has divided already, or the division is there twice."),
        "only divided": ("only-divided", "Divided, but never added up: each rank still trains alone."),
        "maximum": ("maximum-not-mean", "ReduceOp.MAX takes the largest number; a mean is SUM divided by W."),
        "world size": (
            "world-size-hard-coded",
            f"{found.number} is written into the code; ask dist.get_world_size(), which is {world_size} here.",
        ),
        "factor": ("wrong-factor", "A mean is the sum over the ranks divided by their number, nothing else."),
        "some parameters": ("some-parameters-left-out", "The other weights drift apart between the ranks."),
        "some ranks": ("ranks-disagree", "The ranks take different steps, and from then on are different models."),
        "16 bits": (
            "summed-in-16-bits",
            "In 16 bits small gradients are lost in the sum: reduce them as they are.",
        ),
        "other": ("wrong-gradients", "The step is not the one that a single process would take."),
    }
    name, means = names[found.kind]
    if found.kind == "local" and reduced:
        means = "Whatever was reduced, parameter.grad never got it: each rank trains alone."
    if "something else" in found.saw and found.kind == "some parameters":
        means = "What they have is no mean: of a flat tensor, each gradient gets back the very part that it gave."
    if re.search(r"\]\s*\*\s*\w", searchable(where)):
        means = "[tensor] * n is one tensor n times, and each rank's overwrites the last: make n tensors."
    if set(found.by_rank) == {"mean", "sum"}:
        means = "After the all-reduce every rank has the sum, and each must divide its own: here only some have."
    raise Diagnosis(name, saw=found.saw, means=means, look=where)
