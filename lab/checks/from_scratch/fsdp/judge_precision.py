"""Judges MyFSDP with blocks in bf16: what is in which type."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.grading.diagnosis import Diagnosis

MASTERS = "Small updates vanish in bf16: the shards, which the optimizer trains, stay in fp32."


def judge_low_precision(look: Look, reports: Sequence[Any]) -> None:
    for rank, report in enumerate(reports):
        if report["bf16 shards"] != ["torch.float32"]:
            raise Diagnosis(
                "no-fp32-masters",
                saw=f"with dtype=torch.bfloat16 rank {rank} has shards of {', '.join(report['bf16 shards'])}.",
                means=MASTERS,
                look=look.into("Unit.__init__")(r"^(?!self\.dtype).*(\bdtype\b|bfloat16|half)", r"self\.shard = "),
            )
        if set(report["bf16 seen"]) != {"bfloat16"}:
            raise Diagnosis(
                "not-in-bf16",
                saw=f"with dtype=torch.bfloat16 the blocks of rank {rank} saw weights of "
                f"{', '.join(sorted(set(report['bf16 seen'])))}.",
                means="What is gathered and computed with is in self.dtype: half the bytes travel.",
                look=look.into("Unit.fill")(r"gather"),
            )
        if report["bf16 scattered"] < 4 * sum(report["elements"]):
            raise Diagnosis(
                "reduced-in-bf16",
                saw=f"with dtype=torch.bfloat16 rank {rank} got {report['bf16 scattered']} bytes of gradients for "
                f"{sum(report['elements'])} numbers: less than four for each.",
                means="A sum in bf16 keeps eight bits: bring the gradient to the shard's type, fp32, before it is "
                "divided and reduced.",
                look=look.into("Unit.reduce")(r"gradient.*/|/", r"reduce"),
            )
        if report["bf16 gradients"] != ["torch.float32"]:
            raise Diagnosis(
                "no-fp32-masters",
                saw=f"with dtype=torch.bfloat16 rank {rank} has shards of fp32 and gradients of "
                f"{', '.join(report['bf16 gradients'])}.",
                means=MASTERS,
                look=look.into("Unit.reduce")(r"\.to\(", r"reduce"),
            )
