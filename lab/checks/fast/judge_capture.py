"""Judges a step that was recorded and replayed: what is in the graph, what it computes with, what comes out."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.base.words import one_line
from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import ERROR, error_place, expect, expect_as_many, expect_returned, fail
from lab.checks.common.tensors import all_close, example, expect_tensors
from lab.checks.fast.draw import LATER, WARM_UP, Training, train
from lab.checks.fast.judge_replays import judge_numbers, judge_step
from lab.grading.diagnosis import Diagnosis

EVENT = {"what": str, "place": str}
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
    judge_warm_up(look, reports[0]["state"], training)
    for report in reports:
        for step in report["steps"]:
            judge_step(look, step)
    expect_as_many([report["steps"] for report in reports], LATER)
    expect(reports, {"kept": [float], "after": dict})
    expect_as_many([report["kept"] for report in reports], LATER)
    judge_numbers(look, reports, training)


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
            look=look(r"for .* in warm_up", r"recording\("),
        )
    for what, words in WHOLE_STEP.items():
        if "graph" not in places[what]:
            raise Diagnosis(
                f"{what}-not-recorded",
                saw=f"{words} was not called while the graph was recorded.",
                means="The graph has to hold the whole step: what is left out is launched by the CPU, or never.",
                look=look(r"recording\("),
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
            look=look(r"=\s*warm_up\[", r"copy_\("),
        )


def judge_warm_up(look: Look, state: dict[str, Tensor], training: Training) -> None:
    """The weights when the graph has been recorded, on rank 0."""
    batches = training.batches[:WARM_UP]
    right = train(training.weights, batches).state
    expect_tensors([state], {name: value.double() for name, value in right.items()})
    if all_close(state, right):
        return
    if all_close(state, train(training.weights, batches, pile_up_from=0).state):
        raise Diagnosis(
            "gradients-pile-up",
            saw=f"no step of the warm-up cleared the gradients of the one before: {example(state, right)}.",
            means="backward() adds to what is there: each step repeats all earlier ones.",
            look=look(r"zero_grad", r"backward"),
        )
    for same in (0, WARM_UP - 1):
        if all_close(state, train(training.weights, [batches[same]] * WARM_UP).state):
            raise Diagnosis(
                "warm-up-on-one-batch",
                saw=f"every step of the warm-up was taken on batch {same + 1} of {WARM_UP}.",
                means="The steps of the warm-up are the first ones of the training: each has its own batch.",
                look=look(r"for .* in .*", r"warm_up"),
            )
    raise Diagnosis(
        "wrong-warm-up",
        saw=f"after the warm-up {example(state, right)}.",
        means=f"One step on each of the {WARM_UP} batches, in their order, and nothing computed while it records.",
        look=look(r"side_stream", r"warm_up"),
    )
