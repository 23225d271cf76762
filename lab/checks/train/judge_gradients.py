"""Judges the gradients of two training steps: whose they are, if not those of the mean loss."""

import ast
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from lab.checks.common.gradients import verdict
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import first_of, in_helpers, leads_to
from lab.checks.common.syntax import computed_for
from lab.checks.common.tensors import Tensors, all_close, close, example, expect_tensors, factor_between, number
from lab.checks.common.tiny import (
    OTHER_LOSSES,
    Batch,
    TinyNet,
    gradients_of,
    loss_and_gradients,
    one_thread,
    parts,
    weights_after_steps,
)
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

WITHOUT_ZERO_GRAD = "without zero_grad() each step repeats all earlier ones."


# What changes gradients that are there.
BY_HAND = r"\.grad\b.*[-+*/]=|\.grad\.(data\.)?\w+_\(|\.grad(\.data)?\s*=|_foreach_"


def averaged_again(look: Look, reduced: Sequence[str], then: str = "") -> NoReturn:
    """Args: `reduced` are the reductions that the step has made by itself, and `then` says what came of it."""
    times = f"{len(reduced)} times in all"
    raise Diagnosis(
        "averaged-again",
        saw=f"one train_step() called dist.{reduced[0]} by itself, {times}{then and f', and {then}'.rstrip('.')}.",
        means="DDP has averaged already; and under FSDP each rank has other rows: a sum would mix them.",
        look=look(rf"{reduced[0]}\(", r"dist\.|average"),
    )


def judge_by_hand(look: Look, steps: Sequence[dict[str, Any]], mean: Tensors, saw: str) -> None:
    """Gradients that backward() has left right, and that are wrong when the optimizer finds them.

    Args:
        saw: what they are then.
    """
    noted = all(step["after backward"] for step in steps)  # run.backward() has been called
    if noted and not all(all_close(step["after backward"], mean) for step in steps):
        return
    if reduced := steps[0]["reduced"]:
        averaged_again(look, reduced, saw)
    if not noted:
        return
    if "clip" in (place := in_helpers(look, BY_HAND) or look(r"clip|normalize", r"\.grad\b", r"step\(")):
        return
    raise Diagnosis(
        "gradients-changed",
        saw=f"backward() left the mean over the ranks; when optimizer.step() came, {saw}",
        means="The wrapper has averaged, and the run clips where that is asked for: leave gradients as they are.",
        look=place,
    )


def judge_first_gradients(look: Look, steps: Sequence[dict[str, Any]], weights: Tensors, batch: Batch) -> None:
    observed = [step["gradients"] for step in steps]
    world_size = len(observed)
    own = parts(batch, world_size)
    mean = loss_and_gradients(weights, batch)[1]
    compared("gradients of step 1", observed, mean)
    expect_tensors(observed, mean)
    found = verdict(observed, mean, [loss_and_gradients(weights, part)[1] for part in own])
    if found.kind == "mean":
        return
    judge_by_hand(look, steps, mean, found.saw)
    saw, place = found.saw, look(r"cross_entropy|loss\s*=|criterion", r"backward")
    scaling = look(
        r"clip|normalize",
        r"(loss|backward\().*(world_size|[*/]| -)",
        r"cross_entropy|loss\s*=",
        r"backward",
    )
    size = len(own[0][1])
    factor = factor_between(observed[0], mean)
    if factor is not None and close(factor, size):
        raise Diagnosis(
            "loss-summed",
            saw=f"every gradient is {size} times too large; each rank had {size} samples.",
            means="The loss is a sum over the samples, not their mean: the step would grow with the batch.",
            look=place,
        )
    if found.kind == "divided twice":
        raise Diagnosis(
            "loss-divided-by-world-size",
            saw=saw,
            means="DDP and FSDP average the gradients by themselves; the loss must not be divided once more.",
            look=scaling,
        )
    if found.kind == "sum":
        raise Diagnosis(
            "loss-times-world-size",
            saw=saw,
            means="DDP and FSDP take the mean over the ranks; nothing has to make up for it.",
            look=scaling,
        )
    if found.kind == "local":
        place = next(filter(line_of, (look(r"no_sync"), leads_to(look, r"\bmodule\b"))), look(r"model\("))
        raise Diagnosis(
            "wrapper-bypassed",
            saw=saw,
            means="Under no_sync() DDP averages nothing; the run does that where batches are accumulated."
            if "no_sync" in place
            else "Call the wrapped model itself, model(images): model.module(images) leaves out the all-reduce.",
            look=place,
        )
    for name, loss in OTHER_LOSSES.items():
        if all_close(observed[0], gradients_with(weights, batch, loss)):
            raise Diagnosis(
                name,
                saw=f"the gradients are those of another loss: {example(observed[0], mean)}.",
                means="cross_entropy takes the logits as they are, and applies the logarithm of a softmax itself.",
                look=look(r"softmax|nll", r"cross_entropy|loss"),
            )
    if factor is not None and close(factor, -1):
        raise Diagnosis(
            "ascent",
            saw="every gradient has the wrong sign.",
            means="The optimizer steps against the gradient of what it is given: this makes the loss grow.",
            look=look(r"\(\s*-|=\s*-|-\s*(loss|F\.)|maximize", r"(loss|backward\()", r"cross_entropy"),
        )
    if factor is not None:
        raise Diagnosis(
            "wrong-factor",
            saw=f"every gradient is {number(factor)} times that of the mean loss of the batch.",
            means="--clip-norm says whether gradients are clipped, and the run does it: here nobody asked for it."
            if "clip" in scaling
            else "Every step of the optimizer is scaled by it too; it belongs into the learning rate.",
            look=scaling,
        )
    for count in range(1, size):
        cut = [(images[:count], labels[:count]) for images, labels in own]
        joined = torch.cat([images for images, _ in cut]), torch.cat([labels for _, labels in cut])
        if all_close(observed[0], loss_and_gradients(weights, joined)[1]):
            raise Diagnosis(
                "wrong-gradients",
                saw=f"the gradients are those of {count} of each rank's {size} samples.",
                means="A step uses the whole batch; where memory is short, --accumulate makes batches smaller.",
                look=look(r"\[\s*:", r"\[.*:|chunk|split|narrow", r"model\("),
            )
    half = look(r"bfloat16|half|float16|bf16|fp16")
    if line_of(half) and all(
        (observed[0][name] - mean[name]).abs().max() < 0.03 * mean[name].abs().max() for name in mean
    ):
        raise Diagnosis(
            "wrong-gradients",
            saw=f"the gradients are rounded: {example(observed[0], mean)}.",
            means="In a run with fp32 nothing is to be cut to 16 bits: run.autocast() does what --precision asks.",
            look=half,
        )
    raise Diagnosis(
        "wrong-gradients",
        saw=f"the gradients are not those of the mean cross-entropy: {example(observed[0], mean)}.",
        means="The step is not the one that a single process would take on the whole batch.",
        look=first_of(look, made_for_the_loss) or place,
    )


def made_for_the_loss(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[int]:
    """The lines that compute anything of what the model or the loss is given, beside the model."""
    return [
        line
        for function in ("model", "cross_entropy", "nll_loss")
        for position in (0, 1)
        for line in computed_for(node, function, position, ("model", "to", "contiguous"))
    ]


def gradients_with(weights: Tensors, batch: Batch, loss: Any) -> Tensors:
    with one_thread():
        model = TinyNet(weights)
        loss(model(batch[0]), batch[1]).backward()
        return gradients_of(model)


def judge_second_gradients(
    look: Look, observed: Sequence[Tensors], weights: Tensors, batches: Sequence[Batch]
) -> None:
    old = loss_and_gradients(weights, batches[0])[1]
    new = loss_and_gradients(weights_after_steps(weights, batches[:1])[0], batches[1])[1]
    expect_tensors(observed, new)
    if all(all_close(own, new) for own in observed):
        return
    outside = look.into("train_one_epoch")(r"zero_grad\(")
    elsewhere = outside if line_of(outside) and not line_of(look(r"zero_grad")) else ""
    piled = {name: old[name] + new[name] for name in new}
    if all(close(own[name], piled[name]) or close(own[name], new[name]) for own in observed for name in new):
        every = all(all_close(own, piled) for own in observed)
        raise Diagnosis(
            "gradients-pile-up",
            saw=f"in step 2 {'the' if every else 'some of the'} gradients are those of both batches together: "
            f"{example(observed[0], new)}.",
            means="backward() adds to what is there: "
            + (
                "once an epoch is too seldom, zero_grad() belongs into the step."
                if elsewhere
                else WITHOUT_ZERO_GRAD
                if every
                else "zero_grad() clears every parameter, those outside of the layers too."
            ),
            look=elsewhere or look(r"zero_grad", r"\.grad\b|\.zero_\(", r"backward"),
        )
    raise Diagnosis(
        "wrong-second-step",
        saw=f"step 1 is right, but in step 2 {example(observed[0], new)}.",
        means="Something is left over from the step before.",
        look=look(r"zero_grad", r"step\("),
    )
