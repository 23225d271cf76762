"""Judges a step that was recorded and replayed: what is in the graph, what it computes with, what comes out."""

import re
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from typing import Any

from torch import Tensor

from lab.base.source import searchable
from lab.base.words import one_line
from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_values import assigned_at, loop_around
from lab.checks.common.report import ERROR, error_place, expect, expect_as_many, expect_returned, fail, remembered
from lab.checks.common.tensors import all_close, example, expect_tensors
from lab.checks.fast.draw import LATER, WARM_UP, Training, train
from lab.checks.fast.judge_replays import UNWRAPPED, judge_numbers, judge_step
from lab.grading.diagnosis import Diagnosis

EVENT = {"what": str, "place": str, "lines": [int]}
STEP = {
    "error": (None, ERROR),
    "events": [EVENT],
    "type": str,
    "shape": [int],
    "graph": bool,
    "loss": (None, float),
}
REPORT = {
    "error": (None, ERROR),
    "returned": str,
    "callable": bool,
    "captured": [EVENT],
    "state": dict,
    "put_back_at": int,
    "replay": str,
    "borrowed": [str],
    "steps": [STEP],
    "changed": [int],
}

# Event -> what it is called. All of them are in a graph that holds the whole step.
WHOLE_STEP = {"forward": "the model", "backward": "loss.backward()", "step": "optimizer.step()"}

# What a recording refuses: words of the error -> the name of the mistake, and what it means.
REFUSED = {
    ".item()": (
        "item-while-recording",
        "Nothing is computed yet: what a step reads, the CPU would have to wait for.",
    ),
    "an if or while": (
        "if-while-recording",
        "The CPU decides once, while it records, and there is no number to go by: a graph has no branches.",
    ),
    "text of a tensor": (
        "print-while-recording",
        "There is no number to print yet: print what the replays return.",
    ),
    "f-string": ("print-while-recording", "There is no number to print yet: print what the replays return."),
}


def judge_capture(look: Look, reports: Sequence[Any], training: Training) -> None:
    """How it was recorded must be right before what the replays compute tells anything."""
    expect(reports, REPORT)
    for report in reports:
        judge_recording(look, report)
        judge_events(look, report)
    judge_warm_up(look, reports[0], training)
    for report in reports:
        for step in report["steps"]:
            judge_step(look, inside(look, report), step)
    expect_as_many([report["steps"] for report in reports], LATER)
    expect(reports, {"kept": [float], "after": dict})
    expect_as_many([report["kept"] for report in reports], LATER)
    judge_numbers(look, inside(look, reports[0]), reports, training)


def inside(look: Look, report: dict[str, Any]) -> Look:
    """The same in the function that came out; `look` itself where the file has no such function, or a lambda."""
    name = report["replay"]
    inner = look.into(name) if re.fullmatch(r"\w+(\.\w+)*", searchable(name)) else look
    return inner if inner.source()[2] is not None else look


def judge_inputs_elsewhere(look: Look, reports: Sequence[Any]) -> None:
    """The graph's own tensors, where the model is on another device than the CPU."""
    expect(reports, {"elsewhere": str})
    if problem := reports[0]["elsewhere"]:
        raise Diagnosis(
            "inputs-on-cpu",
            saw=f"with model and batches on a GPU (here only pretended) {problem}.",
            means="What the graph computes with lies where the model does: on the device of warm_up.",
            look=look(r"(zeros|ones|empty|full|rand|randn|randint|tensor)\(", r"recording\("),
        )


def judge_another_model(look: Look, report: dict[str, Any]) -> None:
    """A second model, whose batches have the shape of the first one's, has a recording of its own."""
    expect([report], {"again": [bool], "again error": (None, ERROR)})
    if error := report["again error"]:
        fail(error, "capture_step() of a second model", look)
    expect_as_many([report["again"]], 2)
    if not all(report["again"]):
        what = "the step that came back" if report["again"][0] else "warm_up"
        saw = f"of a second model, with batches of the same shape, {what} has changed nothing."
        raise remembered(look, saw)


def judge_recording(look: Look, report: dict[str, Any]) -> None:
    """It came to its end, with a function."""
    if error := report["error"]:
        judge_refusal(look, error)
        fail(error, "capture_step()", look)
    means = "The training loop calls it with each later batch."
    expect_returned(look, report["returned"], means, look(r"def \w+\(", RETURN))
    if not report["callable"]:
        raise Diagnosis(
            "no-step-returned",
            saw=f"capture_step() returned a {report['returned']}, which cannot be called.",
            means=means,
            look=look(RETURN, last=True),
        )


def judge_refusal(look: Look, error: dict[str, Any]) -> None:
    """What cannot be recorded, by its name."""
    if error["type"] != "RecordingError":
        return
    for words, (name, means) in REFUSED.items():
        if words in error["message"]:
            raise Diagnosis(name, saw=one_line(error["message"], 200), means=means, look=error_place(error, look))
    raise Diagnosis(
        "waits-while-recording",
        saw=one_line(error["message"], 200),
        means="A graph holds what the GPU does. Whatever the CPU must know first cannot be in it.",
        look=error_place(error, look),
    )


def judge_events(look: Look, report: dict[str, Any]) -> None:
    """A warm-up, each step of it in a side stream, and then one whole step in the graph."""
    captured = report["captured"]
    places = {what: [event["place"] for event in captured if event["what"] == what] for what in WHOLE_STEP}
    before = [place for place in places["forward"] if place != "graph"]
    if "graph" not in places["forward"]:
        steps = report["steps"]
        anew = sum(("forward", "graph") in map(itemgetter("what", "place"), step["events"]) for step in steps)
        if anew:
            raise Diagnosis(
                "recorded-anew",
                saw=f"capture_step() recorded no graph; what it returned did in {anew} of {len(steps)} calls.",
                means="To record takes longer than a step: record once, in capture_step(), and only replay later.",
                look=inside(look, report)(r"new_graph\(", r"recording\("),
            )
        raise Diagnosis(
            "not-recorded",
            saw=f"capture_step() made {len(before)} forward passes, and none of them while a graph was recorded.",
            means="Only what is done inside of `with recording(graph):` is in the graph.",
            look=look(r"recording\(", r"new_graph"),
        )
    if not before:
        raise Diagnosis(
            "no-warm-up",
            saw="the first step of all was the one that was recorded.",
            means="What a first step makes, momentum and DDP's buckets, would be made anew in each replay.",
            look=look(r"side_stream", r"recording\("),
        )
    if "default stream" in before:
        raise Diagnosis(
            "warm-up-in-default-stream",
            saw=f"{before.count('default stream')} of {len(before)} steps before the recording were outside of "
            "side_stream().",
            means="What they leave behind belongs to the default stream, in which CUDA records nothing.",
            look=look(r"^(\w+ = )?side_stream\(", r"for .* in warm_up", r"recording\("),
        )
    for what, words in WHOLE_STEP.items():
        if "graph" not in places[what]:
            raise Diagnosis(
                f"{what}-not-recorded",
                saw=f"{words} was not called while the graph was recorded.",
                means="The graph has to hold the whole step: what is left out is launched by the CPU, or never.",
                look=outside(look, report, what) or look(r"recording\("),
            )
    if any(event["what"] == "replay" for event in captured):
        raise Diagnosis(
            "replayed-too-early",
            saw="capture_step() itself replayed the graph.",
            means="A replay is a step: this one nobody has asked for.",
            look=look(r"\.replay\("),
        )
    if changed := report["changed"]:
        raise Diagnosis(
            "batch-overwritten",
            saw=f"batch {changed[0] + 1} of warm_up holds other numbers after the replays.",
            means="The graph's inputs are the caller's own tensors: each batch is copied over the caller's data.",
            look=assigned_at(look, report["borrowed"]) or look(r"=\s*warm_up\[-?\d+\]\s*$", r"copy_\("),
        )


def outside(look: Look, report: dict[str, Any], what: str) -> str:
    """Where a part of the step is done when the recording is over; "" where that is nowhere."""
    captured = report["captured"]
    last = max(number for number, event in enumerate(captured) if event["place"] == "graph")
    later = captured[last:] + [event for step in report["steps"] for event in step["events"]]
    lines = [event["lines"][0] for event in later if event["what"] == what and event["lines"]]
    return look.line(lines[0]) if lines else ""


def judge_warm_up(look: Look, report: dict[str, Any], training: Training) -> None:
    """The weights when the graph has been recorded, on rank 0."""
    state, batches = report["state"], training.batches[:WARM_UP]
    right = train(training.weights, batches).state
    expect_tensors([state], {name: value.double() for name, value in right.items()})
    if all_close(state, right):
        return
    off = example(state, right)
    if all_close(state, train(training.weights, batches, pile_up_from=0).state):
        raise Diagnosis(
            "gradients-pile-up",
            saw=f"no step of the warm-up cleared the gradients of the one before: {off}.",
            means="backward() adds to what is there: each step repeats all earlier ones.",
            look=look(r"zero_grad", r"backward"),
        )
    if len(batches[0]) > 1 and all_close(state, train(training.weights, batches, alone_from=0).state):
        raise Diagnosis(
            "gradients-not-averaged",
            saw=f"in the warm-up, rank 0 has learned from its own samples alone: {off}.",
            means="DDP averages the gradients where it is called itself: call `model`, not what it wraps.",
            look=look(*UNWRAPPED),
        )
    lines = [event["lines"] for event in report["captured"] if event["what"] == "forward"]
    loop = loop_around(look, lines[0] if lines else [])
    taken = batches_taken(state, training)
    steps = [event for event in report["captured"] if event["what"] == "step" and event["place"] != "graph"]
    line = report["put_back_at"]
    if steps and (taken == () or line):
        what = "model is what it was" if taken == () else "parameters are what they were"
        raise Diagnosis(
            "warm-up-undone",
            saw=f"the {what} before the warm-up: {off}.",
            means="The steps of the warm-up are the first ones of the training: what they have learned stays.",
            look=look.line(line) if line else loop or look(r"load_state_dict\(|copy_\(", last=True),
        )
    if taken and len(taken) == WARM_UP and len(set(taken)) == 1:
        raise Diagnosis(
            "warm-up-on-one-batch",
            saw=f"every step of the warm-up was taken on batch {taken[0] + 1} of {WARM_UP}.",
            means="The steps of the warm-up are the first ones of the training: each has its own batch.",
            look=look(r"for .* in .*", r"warm_up"),
        )
    means = f"One step on each of the {WARM_UP} batches, in their order, and nothing computed while it records."
    if taken:
        said = f"of {WARM_UP} batches, the warm-up took its steps on {', '.join(str(one + 1) for one in taken)}"
        raise Diagnosis(
            "wrong-warm-up", saw=f"{said}: {off}.", means=means, look=loop or look(r"side_stream", r"warm_up")
        )
    raise Diagnosis(
        "wrong-warm-up", saw=f"after the warm-up {off}.", means=means, look=look(r"side_stream", r"warm_up")
    )


def batches_taken(state: dict[str, Tensor], training: Training) -> tuple[int, ...] | None:
    """The numbers of the batches of the warm-up on which steps lead to these weights; None where none do."""
    counted = {int(value) for name, value in state.items() if name.endswith("num_batches_tracked")}
    steps = counted.pop() if counted else 0
    if steps not in range(WARM_UP + 2):
        return None
    if steps == 0:
        weights = {name: value.double() for name, value in training.weights.items()}
        return () if all_close(state, weights) else None
    for numbers in product(range(WARM_UP), repeat=steps):
        if all_close(state, train(training.weights, [training.batches[one] for one in numbers]).state):
            return numbers
    return None
