"""Judges the replays of a recorded step: what each call does, the weights it leads to, the losses it returns."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from lab.base.words import one_line
from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_values import last_use
from lab.checks.common.report import expect, fail
from lab.checks.common.tensors import all_close, close, example, expect_tensors, number
from lab.checks.fast.draw import LATER, WARM_UP, Trained, Training, train
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

# What leaves the averaging of gradients out.
UNWRAPPED = (r"\bno_sync\b|require_backward_grad_sync", r"\bmodule\b")


def judge_step(look: Look, inner: Look, step: dict[str, Any]) -> None:
    """What one call of the returned function did, and the kind of its result.

    Args:
        inner: looks into that function.
    """
    if error := step["error"]:
        if "out of bounds" in error["message"]:
            raise Diagnosis(
                "labels-not-copied",
                saw=f"a replay computed with labels that are none: {one_line(error['message'], 120)}",
                means=COPIED["labels-not-copied"][1],
                look=not_copied(inner, "labels-not-copied"),
            )
        fail(error, "the returned function", look)
    did = [event["what"] for event in step["events"]]
    if "forward" in did:
        raise Diagnosis(
            "computed-anew",
            saw=f"a later step did: {', '.join(did)}.",
            means="A step that goes through the model in Python is launched kernel by kernel: nothing is gained.",
            look=look(r"= step\(|train_step\(", r"model\(", last=True),
        )
    if did.count("replay") != 1:
        raise Diagnosis(
            "not-replayed-once",
            saw=f"a later step replayed the graph {did.count('replay')} times.",
            means="A replay is a step: each batch gets one.",
            look=inner(r"\.replay\(", RETURN, last=True),
        )
    means = "Return the loss as a tensor: whoever logs it reads it, now and then, and the others need not wait."
    if step["type"] == "NoneType":
        raise Diagnosis(
            "loss-missing", saw="the returned function returned None.", means=means, look=inner(RETURN)
        )
    if step["type"] in ("float", "int"):
        raise Diagnosis(
            "loss-as-number",
            saw="the returned function returned a number of Python's.",
            means="The CPU has to wait for the GPU in every step to have it, as with .item() in a loop.",
            look=inner(r"\.item\(|\.tolist\(|float\(", RETURN),
        )
    if step["loss"] is None or step["shape"] not in ([], [1]):
        raise Diagnosis(
            "loss-not-a-number",
            saw=f"the returned function returned a {step['type']} of shape {step['shape']}.",
            means=means,
            look=inner(RETURN),
        )
    if step["graph"]:
        raise Diagnosis(
            "loss-not-detached",
            saw="the loss that comes out of a replay still has autograd's graph behind it.",
            means="That graph is of the recording, and keeps all its memory.",
            look=look(r"return loss", r"\.clone\("),
        )


def judge_numbers(look: Look, inner: Look, reports: Sequence[Any], training: Training) -> None:
    """Weights and losses of the replays, against training without a graph."""
    right = train(training.weights, training.batches)
    state = reports[0]["after"]
    expect_tensors([state], {name: value.double() for name, value in right.state.items()})
    compared("weights after all steps, rank 0", [state], right.state)
    if not all_close(state, right.state):
        judge_weights(look, inner, reports, training, right)
    for rank, report in enumerate(reports):
        returned = [step["loss"] for step in report["steps"]]
        expected = [step[rank] for step in right.losses[WARM_UP:]]
        compared(f"losses of the replays, rank {rank}", [returned], expected)
        judge_losses(look, inner, rank, returned, expected)
        if not all(map(close, report["kept"], expected)):
            raise Diagnosis(
                "loss-not-cloned",
                saw=f"the losses of {LATER} steps were {shown(returned)}; read afterwards they are "
                f"{shown(report['kept'])}.",
                means="All of them are the one tensor into which every replay writes: clone what comes out.",
                look=inner(RETURN, last=True),
            )


def judge_weights(look: Look, inner: Look, reports: Sequence[Any], training: Training, right: Trained) -> None:
    """The weights are wrong: told by what leads to them."""
    state = reports[0]["after"]
    off = example(state, right.state)
    for name, batches in mistaken(training.batches):
        if all_close(state, train(training.weights, batches).state):
            saw, means = COPIED[name]
            raise Diagnosis(name, saw=f"{saw}: {off}.", means=means, look=not_copied(inner, name))
    if all_close(state, train(training.weights, training.batches, pile_up_from=WARM_UP).state):
        outside = any(event["what"] == "zero" for step in reports[0]["steps"] for event in step["events"])
        if outside:
            raise Diagnosis(
                "cleared-outside",
                saw=f"the gradients were cleared beside the graph, and it still adds to the old ones: {off}.",
                means="Setting p.grad to None only changes what Python sees: the graph goes on with its tensors.",
                look=look(r"zero_grad|\.grad = None", last=True),
            )
        raise Diagnosis(
            "gradients-pile-up",
            saw=f"each replay adds its gradients to those of all before: {off}.",
            means="They were there when the recording began, and nothing in the graph clears them.",
            look=look(r"recording\(", r"zero_grad"),
        )
    if len(training.batches[0]) > 1:
        alone = train(training.weights, training.batches, alone_from=WARM_UP)
        if all_close(state, alone.state):
            raise Diagnosis(
                "gradients-not-averaged",
                saw=f"in the replays, rank 0 has learned from its own samples alone: {off}.",
                means="DDP averages the gradients where it is called itself: call `model`, not what it wraps.",
                look=look(*UNWRAPPED),
            )
    raise Diagnosis(
        "replays-differ",
        saw=f"after {LATER} replays {off}, as the same steps without a graph have.",
        means="A replay must be the step that train_step() would take on the same batch.",
        look=look(r"recording\("),
    )


COPIED = {
    "inputs-not-copied": (
        "every replay trained on the batch of the recording",
        "The graph computes with the tensors that it has met: copy_() each batch into them.",
    ),
    "images-not-copied": (
        "every replay trained on the images of the recording, with each batch's own labels",
        "Both have to be copied into the tensors that the graph knows.",
    ),
    "labels-not-copied": (
        "every replay trained on the labels of the recording, with each batch's own images",
        "Both have to be copied into the tensors that the graph knows.",
    ),
    "copied-at-times": (
        "the last replay trained on the batch before, whose place in memory its own has",
        "That a tensor is the same tells nothing of its numbers: copy each batch.",
    ),
    "copied-too-late": (
        "every replay trained on the batch of the step before",
        "The replay reads what is in its inputs when it begins: copy first.",
    ),
    "images-copied-too-late": (
        "every replay trained on the images of the step before, with the batch's own labels",
        "The replay reads what is in its inputs when it begins: copy both first.",
    ),
    "labels-copied-too-late": (
        "every replay trained on the labels of the step before, with the batch's own images",
        "The replay reads what is in its inputs when it begins: copy both first.",
    ),
}


def judge_written(look: Look, reports: Sequence[Any], told: Diagnosis) -> None:
    """What the copies of a replay went to is written by the graph itself, after them. `told`: what came of it."""
    expect(reports, {"written": int})
    if line := reports[0]["written"]:
        raise Diagnosis(
            "input-written-in-the-graph",
            saw=told.saw,
            means="This line is recorded, too: each replay repeats it, over what was copied in. Do it before.",
            look=look.line(line),
        )


def not_copied(look: Look, name: str) -> str:
    """Where the function does something else with what it is given than to copy it, or not enough.

    Args:
        look: looks into the function that came out.
    """
    replays = look(r"\.replay\(")
    if name.endswith("copied-too-late"):
        return replays
    _, _, node = look.source()
    if name == "copied-at-times":
        return look(r"^(el)?if ", r"\.copy_\(", RETURN)
    given = [one.arg for one in node.args.args if one.arg != "self"] if node else []
    if len(given) != 2:
        return look(r"\.data\s*=[^=]", r"\.replay\(")
    images, labels = given
    wanted = {"images-not-copied": ([images], [labels]), "labels-not-copied": ([labels], [images])}
    for names in wanted.get(name, ([images], [labels])):
        if line := last_use(look, names):
            return look.line(line)
    return replays


def mistaken(batches: list[list[Any]]) -> Iterator[tuple[str, list[list[Any]]]]:
    """Key of COPIED, and the batches on which all steps are taken then."""
    first, later = batches[:WARM_UP], batches[WARM_UP:]
    yield "copied-at-times", [*batches[:-1], batches[-2]]
    nothing = [(torch.zeros_like(images), torch.zeros_like(labels)) for images, labels in first[0]]
    for held in (first[-1], first[0], nothing):
        yield "inputs-not-copied", first + [held] * LATER
        yield "images-not-copied", first + [mixed(held, own) for own in later]
        yield "labels-not-copied", first + [mixed(own, held) for own in later]
        before = [held, *later[:-1]]
        yield "copied-too-late", first + before
        yield "images-copied-too-late", first + list(map(mixed, before, later))
        yield "labels-copied-too-late", first + list(map(mixed, later, before))


def mixed(images: list[Any], labels: list[Any]) -> list[Any]:
    """For each rank the images of one batch and the labels of another."""
    return [(mine[0], other[1]) for mine, other in zip(images, labels, strict=True)]


def judge_losses(look: Look, inner: Look, rank: int, returned: list[float], expected: list[float]) -> None:
    if all(map(close, returned, expected)):
        return
    saw = f"on rank {rank} the replays returned {shown(returned)}; the losses were {shown(expected)}."
    if all(map(math.isnan, returned)):
        raise Diagnosis(
            "loss-of-the-recording",
            saw=saw,
            means="This was taken when the graph was recorded: nothing had been computed then.",
            look=look(r"\.clone\(|loss =", RETURN),
        )
    if math.isnan(returned[0]) and all(map(close, returned[1:], expected[:-1])):
        raise Diagnosis(
            "loss-of-the-step-before",
            saw=saw,
            means="What the graph returns is taken before the replay that computes it.",
            look=inner(r"\.clone\(", r"\.replay\("),
        )
    raise Diagnosis(
        "wrong-loss",
        saw=saw,
        means="The mean loss of this rank's samples, with the weights before the step.",
        look=look(r"loss =", RETURN),
    )


def shown(losses: Sequence[float]) -> str:
    return ", ".join(map(number, losses))
