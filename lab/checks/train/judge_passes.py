"""Judges how an evaluation ran the model, and how it left it."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look, line_of
from lab.grading.diagnosis import Diagnosis

BYPASSED = (
    "Past its wrapper a model gathers nothing, and fully_shard leaves no .module: call model(images) itself."
)


def judge_after(look: Look, own: Sequence[dict[str, Any]]) -> None:
    """The model trains again, and gradients are recorded again."""
    for rank, report in enumerate(own):
        if not report["restored"]:
            raise Diagnosis(
                "training-mode-not-restored",
                saw=f"after evaluate() the model is still in evaluation mode on rank {rank}.",
                means="The next epoch would train without dropout and with BatchNorm's old statistics.",
                look=look(r"\.training\s*=(?!=)", r"\.train\(", r"\.eval\("),
            )
        if not report["gradients"]:
            raise Diagnosis(
                "gradients-left-off",
                saw=f"after evaluate() gradients are still switched off on rank {rank}.",
                means="The next epoch's backward() fails. `with torch.no_grad():` ends by itself.",
                look=look(r"set_grad_enabled|grad|inference", r"\.eval\("),
            )


def judge_passes(look: Look, rank: int, report: dict[str, Any], wrapper: str, images: int) -> None:
    """All images once, in evaluation mode, without gradients."""
    passes = report["passes"]
    seen = sum(one["images"] for one in passes)
    if any(one["training"] for one in passes):
        back = look(r"\.train\((?!False)")
        early = 0 < line_of(back) < line_of(look(r"\bfor\b"))
        between = bool(line_of(back)) and not passes[0]["training"]  # put back after the first batch
        raise Diagnosis(
            "evaluated-in-training-mode",
            saw=f"under {wrapper} the forward passes of evaluate() ran in training mode on rank {rank}.",
            means="Dropout would still drop, and BatchNorm would learn from the validation images.",
            look=back if early or between else look(r"\.eval\b|\.train\(False", r"\bfor\b"),
        )
    if any(one["gradients"] for one in passes):
        raise Diagnosis(
            "gradients-on",
            saw=f"under {wrapper} the forward passes of evaluate() recorded a graph on rank {rank}.",
            means="Activations are kept for a backward pass that never comes: memory and time for nothing.",
            look=look(r"no_grad|inference_mode", r"\bfor\b"),
        )
    if report["called"] < len(passes):
        raise Diagnosis(
            "wrapper-bypassed",
            saw=f"under {wrapper} {len(passes) - report['called']} of {len(passes)} forward passes on rank {rank} "
            "went past the wrapped model.",
            means=BYPASSED,
            look=look(r"\bmodule\b", r"model\("),
        )
    if seen != images:
        raise Diagnosis(
            "batches-left-out" if seen < images else "batches-repeated",
            saw=f"rank {rank} ran {seen} images through the model; its loader yields {images}.",
            means="Every sample counts once, and all ranks must run the same batches: FSDP gathers in each."
            if seen
            else "It gave back what was computed before, or ended too early: each call runs all batches.",
            look=look(r"break|continue|islice|\bif\b", r"\bfor\b"),
        )
