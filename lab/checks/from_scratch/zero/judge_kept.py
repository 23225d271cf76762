"""Judges what each rank keeps of the states, and what a step sends."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.look_around import first_of, in_classes, in_helpers, leads_to
from lab.checks.common.report import numbers
from lab.checks.common.syntax import changed_in_loop
from lab.checks.from_scratch.zero.draw import CASES, Drawn, whole_states
from lab.checks.from_scratch.zero.places import SHARE, lost_at
from lab.grading.diagnosis import Diagnosis

INIT, HAND_OUT = "ZeroOptimizer.__init__", "ZeroOptimizer.hand_out"
UNEVEN = 1.2  # the largest share, relative to 1/N of all, from which on it is no balance
LOST = "An optimizer that fills its states when it is made counts on them: only those of other shares go."

Weights = Sequence[Tensor]


def judge_early(look: Look, lost: Sequence[int], name: str) -> None:
    """Of the own share stays what the optimizer has from the beginning: PyTorch before 2.14 makes it only then."""
    if gone := max(lost):
        rank = list(lost).index(gone)
        raise Diagnosis(
            "early-states-lost",
            saw=f"{name}: before its first step rank {rank} lost the states of {gone} parameters of its share.",
            means=LOST,
            look=lost_at(look.into(INIT)),
        )


def judge_copied(look: Look, lines: Sequence[Sequence[int]]) -> None:
    """What comes from another rank is there before it is copied."""
    for rank, own in enumerate(lines):
        if own:
            hand_out = look.into(HAND_OUT)
            place = leads_to(hand_out, r"\.copy_\(|\.data\b")
            raise Diagnosis(
                "copied-before-wait",
                saw=f"rank {rank} copied {len(own)} times from a tensor whose broadcast nobody had waited for.",
                means="With async_op=True it has only begun: wait() for it first, and copy then.",
                look=place or look.line(own[0]),
            )


def judge_states(look: Look, found: Sequence[dict[str, Any]], drawn: Drawn, case: int) -> None:
    held = [one["held"] for one in found]
    whole = whole_states(drawn, case)
    said = f"{CASES[case].name}, {len(held)} ranks: of {whole} bytes of states they keep {numbers(held)}"
    if min(held) >= whole:
        early = CASES[case].name == "Adagrad"
        raise Diagnosis(
            "early-states-kept" if early else "states-not-shared",
            saw=f"{said}.",
            means="Adagrad makes its states when it is made: take those of other shares out of optimizer.state."
            if early
            else f"Each of {len(held)} ranks keeps the states of 1/{len(held)}: it steps its own share only.",
            look=look.into(INIT)(*([r"\.state\b"] if early else []), SHARE),
        )
    if sum(held) > whole and (changed := first_of(look.into(INIT), changed_in_loop)):
        raise Diagnosis(
            "skipped-in-loop",
            saw=f"{said}, {sum(held)} together.",
            means="The loop goes over the list that it changes: behind each one that is taken out it skips one.",
            look=changed,
        )
    if sum(held) > whole:
        raise Diagnosis(
            "states-kept-twice",
            saw=f"{said}, {sum(held)} together.",
            means="A parameter has one owner: the other ranks keep no states of it.",
            look=look.into(INIT)(r"param_groups\[-?[\d:]", SHARE, r"\.state"),
        )
    if case == 0 and max(held) > UNEVEN * whole / len(held):
        if dealt_out(found[0]["owners"], drawn.weights[case], len(held)):
            raise Diagnosis(
                "dealt-out-by-count",
                saw=f"{said}.",
                means="Each share has as many parameters; what counts is how many numbers each has so far.",
                look=in_turn(look.into("divide")),
            )
        raise Diagnosis(
            "unbalanced",
            saw=f"{said}.",
            means="The fullest rank decides how much memory is needed: give the largest parameters away first.",
            look=look.into("divide")(r"sort", r"^for "),
        )


def in_turn(look: Look) -> str:
    """Where the next share is chosen, in the function, a helper of it, or a class that it uses."""
    by_count = r"\blen\b|%"
    return (
        in_helpers(look, by_count)
        or in_classes(look, r"%")
        or in_classes(look, r"\blen\b")
        or look(r"append|\+=", r"^for ")
    )


def dealt_out(owners: Sequence[Sequence[int]], weights: Weights, ranks: int) -> bool:
    """Whether from the largest to the smallest each rank got one in turn."""
    sizes = [one.numel() for one in weights]
    order = sorted(sizes, reverse=True)
    shares = [
        sorted((n for n, own in zip(sizes, owners, strict=True) if own == [r]), reverse=True) for r in range(ranks)
    ]
    return shares == [order[rank::ranks] for rank in range(ranks)]


def judge_calls(look: Look, calls: Sequence[dict[str, Any]], weights: Weights) -> None:
    model = sum(one.nbytes for one in weights)
    reduced = [call["bytes"] for call in calls if "allreduce" in call["name"]]
    if sum(reduced) > 0.9 * model:
        raise Diagnosis(
            "all-reduced",
            saw=f"a step of {model} bytes of weights all-reduced {sum(reduced)} bytes.",
            means="An all-reduce sends everything twice, around and back: a broadcast from its owner, once.",
            look=look.into(HAND_OUT)(r"all_reduce"),
        )
    if len(calls) >= len(weights):
        raise Diagnosis(
            "message-for-each",
            saw=f"a step of {len(weights)} parameters took {len(calls)} collectives.",
            means="Every message costs its latency: a share travels as one flat tensor, in one broadcast.",
            look=look.into(HAND_OUT)(r"broadcast|gather|reduce"),
        )
    sent = sum(call["bytes"] for call in calls)
    if sent > 1.1 * model + 100:
        raise Diagnosis(
            "too-many-bytes",
            saw=f"a step of {model} bytes of weights took {len(calls)} collectives with {sent} bytes together.",
            means="Each share travels once, from its owner: together they are the model, once.",
            look=look.into(HAND_OUT)(r"broadcast|gather|reduce"),
        )
