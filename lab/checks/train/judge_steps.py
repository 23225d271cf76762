"""Judges two training steps: what was done in which order, the gradients, the loss that came back."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.judge_left import LEFT, judge_asked, judge_left, judge_swallowed, judge_unwrapped
from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, expect, expect_as_many
from lab.checks.common.tensors import Tensors, all_close, close, example, expect_tensors, factor_between
from lab.checks.common.tiny import (
    Batch,
    loss_and_gradients,
    weights_after_steps,
)
from lab.checks.train.judge_gradients import averaged_again, judge_first_gradients, judge_second_gradients
from lab.checks.train.judge_loss import LOSS, judge_kind, judge_loss, judge_precision
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

STEP = {
    "events": [str], "gradients": dict, "weights": dict, "loss": LOSS, "reduced": [str], "training": bool,
    "handed": int, "opened": bool, "left": LEFT, "after backward": dict,
}  # fmt: skip


# What raises in a step -> how it is called.
FAILING = {
    "zero_grad": "optimizer.zero_grad()", "autocast": "run.autocast()", "forward": "the model's forward",
    "backward": "run.backward()", "step": "optimizer.step()",
}  # fmt: skip

STEPS, BY_THE_RUN = "one step on the whole batch", "loss and precision of the run"


def judge_steps(look: Look, reports: Sequence[Any], weights: Tensors, batches: Sequence[Batch]) -> None:
    """The first step must be right before the second tells anything."""
    expect(
        reports,
        {
            "steps": [STEP], "fp32": str, "bf16": str, "bf16 loss": str, "computed": bool, "accumulated": dict,
            "asked": str, "waits": [{"by": str, "line": int}], "unwrapped": (None, ERROR),
            "swallowed": dict.fromkeys(FAILING, str),
        },
    )  # fmt: skip
    expect_as_many([report["steps"] for report in reports], len(batches))
    first, second = ([report["steps"][i] for report in reports] for i in range(2))
    # In the order of execution: what comes first is told.
    with part(BY_THE_RUN, after=[STEPS]):
        for report, step in zip(reports, first, strict=True):
            judge_precision(look, report)
            if "forward" in step["events"]:
                judge_autocast(look, step)
    with part(STEPS):
        for rank, step in enumerate(first):
            judge_order(look, rank, step)
        judge_first_gradients(look, first, weights, batches[0])
    with part(BY_THE_RUN):
        judge_loss(look, [step["loss"] for step in first], weights, batches[0])
    for report, step in zip(reports, first, strict=True):
        with part(BY_THE_RUN):
            judge_kind(look, report)
        with part(STEPS):
            judge_side_effects(look, step)
        with part(BY_THE_RUN):
            judge_by_the_run(look, step)
    with part(STEPS):
        judge_second_gradients(look, [step["gradients"] for step in second], weights, batches)
    with part(BY_THE_RUN):
        judge_accumulation(look, [report["accumulated"] for report in reports], weights, batches)
    with part(STEPS):
        judge_weights(look, [step["weights"] for step in second], weights, batches)
        judge_left(look, [step["left"] for step in first])
        for report in reports:
            for name, what in FAILING.items():
                judge_swallowed(look, report["swallowed"][name], what)
            judge_asked(look, report["asked"])
            judge_unwrapped(look, report["unwrapped"])
    with part(BY_THE_RUN):
        for report in reports:
            judge_waits(look, report["waits"])


def judge_weights(look: Look, after: Sequence[Tensors], weights: Tensors, batches: Sequence[Batch]) -> None:
    """Those that one process has after both steps."""
    twin = weights_after_steps(weights, batches)[-1]
    compared("weights after 2 steps", after, twin)
    expect_tensors(after, twin)
    for rank, own in enumerate(after):
        if not all_close(own, twin):
            raise Diagnosis(
                "updates-differ",
                saw=f"after 2 steps on rank {rank} {example(own, twin)}, as one process has.",
                means="A step on several ranks must be the step of a single process on the whole batch.",
                look=look(r"step\("),
            )


def judge_autocast(look: Look, step: dict[str, Any]) -> None:
    """The run's own, which knows more than fp32."""
    if not step["opened"]:
        raise Diagnosis(
            "run-autocast-not-used",
            saw="the forward pass of train_step() ran outside of run.autocast().",
            means="Only the run knows the precision, fp16 too, and the device; what is written here knows one.",
            look=look(r"autocast", r"model\("),
        )


def judge_by_the_run(look: Look, step: dict[str, Any]) -> None:
    """Backward is the run's own too, which knows more than one batch a step."""
    if step["handed"] == 0:
        raise Diagnosis(
            "run-backward-not-used",
            saw="train_step() went backward by itself, not through run.backward(loss).",
            means="It scales the loss for fp16, without which such a run ends, and notes it for the records.",
            look=look(r"backward\(|autograd", r"step\("),
        )


def judge_accumulation(
    look: Look, observed: Sequence[Tensors], weights: Tensors, batches: Sequence[Batch]
) -> None:
    """With --accumulate 2, a step has the mean gradients of two batches."""
    each = [loss_and_gradients(weights, batch)[1] for batch in batches]
    mean = {name: (each[0][name] + each[1][name]) / 2 for name in each[0]}
    if not all(observed):
        return
    expect_tensors(observed, mean)
    if all(close(factor_between(own, mean) or 0.0, 0.5) for own in observed):
        raise Diagnosis(
            "accumulation-broken",
            saw="with --accumulate 2, which takes two batches to a step, every gradient is half the mean.",
            means="run.backward() has divided the loss by 2 already: your own division is one too many.",
            look=look(r"/=?.*\baccumul", r"(loss|backward\().*/|/=", r"backward"),
        )
    if not all(all_close(own, mean) for own in observed):
        raise Diagnosis(
            "accumulation-broken",
            saw=f"with --accumulate 2, which takes two batches to a step, {example(observed[0], mean)}.",
            means="The run lets optimizer.zero_grad() and step() wait for the whole step; by hand nothing waits.",
            look=look(r"grad\b.*=\s*None|\.grad\b|zero_grad", r"step\("),
        )


def judge_waits(look: Look, waits: Sequence[dict[str, Any]]) -> None:
    """The CPU goes on to the next step while the GPU works."""
    for one in waits:
        raise Diagnosis(
            "waits-for-the-gpu",
            saw=f"on a GPU (here only pretended) train_step() read numbers from it, by {one['by']}."
            if one["by"] != "synchronize()"
            else "on a GPU (here only pretended) train_step() called synchronize().",
            means="The CPU then waits in every step until the GPU has finished it: leave the loss on the device.",
            look=look.line(one["line"]),
        )


def judge_order(look: Look, rank: int, step: dict[str, Any]) -> None:
    """Forward, backward, step: each there, and in this order."""
    events = step["events"]
    if "backward" not in events:
        raise Diagnosis(
            "no-backward",
            saw=f"one train_step() did: {', '.join(events) or 'nothing'}; there was no backward pass.",
            means="Without a backward pass there are no gradients, and the optimizer has nothing to go by.",
            look=look(r"backward", r"loss"),
        )
    if "step" not in events:
        raise Diagnosis(
            "no-step",
            saw=f"one train_step() did: {', '.join(events)}; optimizer.step() was not called.",
            means="The gradients are computed, but the weights never change."
            if not (condition := look.under(r"optimizer\.step"))
            else "Every train_step() is one step; the run lets step() wait where batches are accumulated.",
            look=condition or look(r"optimizer\.step\b", r"backward"),
        )
    if events.index("step") < events.index("backward"):
        raise Diagnosis(
            "step-before-backward",
            saw=f"one train_step() did: {', '.join(events)}.",
            means="The optimizer uses the gradients of the batch before, and in the first step none.",
            look=look(r"optimizer\.step"),
        )
    if events.count("step") > 1:
        raise Diagnosis(
            "two-steps",
            saw=f"one train_step() called optimizer.step() {events.count('step')} times.",
            means="The second step goes on with gradients that belong to the weights before the first.",
            look=look(r"optimizer\.step"),
        )
    gradients = [value for value in step["gradients"].values() if isinstance(value, Tensor)]
    if not any(bool(value.any()) for value in gradients):
        raise Diagnosis(
            "cleared-before-step",
            saw=f"on rank {rank} optimizer.step() found no gradients, although there had been a backward pass.",
            means="zero_grad() between backward() and step() throws away what was just computed.",
            look=look(r"zero_grad", r"grad", last=True),
        )


def judge_side_effects(look: Look, step: dict[str, Any]) -> None:
    """What leaves the gradients of this network as they are, but not those of others."""
    if reduced := step["reduced"]:
        averaged_again(look, reduced)
    if not step["training"]:
        raise Diagnosis(
            "not-in-training-mode",
            saw="train_step() was handed a model in training mode, and left it in evaluation mode.",
            means="Dropout would not drop, and BatchNorm would not learn.",
            look=look(r"\.eval\(|\.train\(False"),
        )
