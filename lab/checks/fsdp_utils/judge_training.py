"""Judges two training steps of a sharded model in fp32: the gradients, and the weights at the end."""

from collections.abc import Sequence
from typing import Any

from lab.base.words import one_line
from lab.checks.common.gradients import verdict
from lab.checks.common.look import Look
from lab.checks.common.report import expect
from lab.checks.common.tensors import Tensors, all_close, example, expect_texts
from lab.checks.common.tiny import Batch, loss_and_gradients, parts, weights_after_steps
from lab.checks.fsdp_utils.judge_start import join
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared


def judge_training(
    look: Look, reports: Sequence[dict[str, Any]], weights: Tensors, batches: Sequence[Batch]
) -> None:
    """The whole batch's gradients and the twin's weights, computed in fp32."""
    for rank, report in enumerate(reports):
        if report["error"]:
            raise Diagnosis(
                "training-failed",
                saw=f"on rank {rank} a step with the sharded model raised {one_line(report['error'], 160)}",
                means="The model is sharded, but cannot be trained like this.",
                look=look(r"fully_shard\("),
            )
    expect(reports, {"computed": dict, "gradients": dict, "end": dict})
    expect_texts([report["computed"] for report in reports])
    low = [name for name, kind in reports[0]["computed"].items() if kind != "float32"]
    if low:
        raise Diagnosis(
            "fp32-not-fp32",
            saw=f"with precision='fp32' the layer {low[0]} computed in {reports[0]['computed'][low[0]]}.",
            means="Low precision is what precision='bf16' asks for; fp32 must stay exact.",
            look=look(r"precision\s*=[^=]", r"bfloat16|float16", r"mp_policy"),
        )
    world_size = len(reports)
    sharding = look(r"fully_shard\(")
    gradients = [report["gradients"] for report in reports]
    if any(not shard for shard in gradients):
        raise Diagnosis(
            "gradients-not-reduced",
            saw="after backward() the sharded parameters have no gradients.",
            means="The optimizer would change nothing.",
            look=look(r"gradient_sync|no_sync", r"fully_shard\("),
        )
    mean = loss_and_gradients(weights, batches[0])[1]
    local = [loss_and_gradients(weights, own)[1] for own in parts(batches[0], world_size)]
    whole = join(look, gradients, mean)
    compared("gradients of step 1", [whole] * world_size, mean)
    found = verdict([whole] * world_size, mean, local)
    if found.kind != "mean":
        raise Diagnosis(
            "wrong-gradients",
            saw=found.saw,
            means="FSDP averages by itself; the step must be the one that a single process would take.",
            look=sharding,
        )
    twin = weights_after_steps(weights, batches)[-1]
    end = join(look, [report["end"] for report in reports], twin)
    compared("weights after 2 steps", [end] * world_size, twin)
    if not all_close(end, twin):
        raise Diagnosis(
            "updates-differ",
            saw=f"after 2 steps {example(end, twin)}, as one process has.",
            means="Training on several ranks must be training on one, only with less memory on each.",
            look=sharding,
        )
