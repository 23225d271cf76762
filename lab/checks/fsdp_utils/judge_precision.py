"""Judges what precision="bf16" and "fp16" have made of a sharded model."""

import ast
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.base.words import one_line
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_classes, in_helpers
from lab.checks.common.report import expect, remembered
from lab.checks.common.syntax import calls_of, root_of
from lab.checks.common.tensors import expect_texts
from lab.checks.fsdp_utils.judge_shards import judge_gathered
from lab.checks.fsdp_utils.placement import outer_first
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

BATCHNORM = "blocks.0.3"  # in TinyNet

BLOCK_CALL = r"fully_shard\((?!\s*model\s*[,)])"
POLICY = r"mp_policy|MixedPrecisionPolicy\("

NET = {
    "error": str, "gradients": dict, "loss": float, "logits": str, "computed": dict, "parameters": dict,
    "statistics": dict, "order": [str], "gathered": dict, "kept": bool,
}  # fmt: skip


def judge_precision(look: Look, reports: Sequence[Any]) -> None:
    """Raise the diagnosis of the first thing that is wrong."""
    expect(reports, {"plain": NET, "batchnorm": NET, "fp16": NET, "later": dict})
    expect_texts([report["later"] for report in reports])
    judge_kept(look, reports[0])
    for net in ("plain", "batchnorm", "fp16"):
        for key in ("computed", "parameters", "statistics"):
            expect_texts([report[net][key] for report in reports])
    plain = [report["plain"] for report in reports]
    for net, kind in (("plain", "bfloat16"), ("fp16", "float16")):
        computed = [sorted(set(report[net]["computed"].values())) for report in reports]
        compared(f"layers compute in, {net.replace('plain', 'bf16')}", computed, [kind])
    compared("logits come out in", [one["logits"] for one in plain], "float32")
    judge_parameters(look, plain[0])
    judge_computing(look, plain[0])
    judge_gradients(look, plain, "bf16")
    judge_logits(look, plain[0]["logits"], "bf16")
    judge_batchnorm(look, reports[0]["batchnorm"])
    judge_fp16(look, reports[0]["fp16"])
    judge_gradients(look, [report["fp16"] for report in reports], "fp16")
    judge_logits(look, reports[0]["fp16"]["logits"], "fp16")
    for net, precision in (("plain", "bf16"), ("fp16", "fp16")):
        judge_gathered(look, reports[0][net]["gathered"], f"with precision={precision!r}, ")


def judge_kept(look: Look, report: dict[str, Any]) -> None:
    """Each call shards the model that it is given, in the precision that it is asked for."""
    for net, precision in (("batchnorm", "bf16"), ("fp16", "fp16")):
        if report[net]["kept"]:
            raise remembered(
                look,
                f"get_fsdp_model() was given another model, with precision={precision!r}, and returned the one of "
                "an earlier call.",
            )
    if others := sorted(set(report["later"].values()) - {"float32"}):
        raise remembered(
            look, f"after models in bf16 and fp16, one with precision='fp32' computed in {', '.join(others)}."
        )


def judge_alone(look: Look, reports: Sequence[Any]) -> None:
    """On one rank, where nothing is reduced."""
    expect(reports, {"plain": NET})
    expect_texts([reports[0]["plain"]["computed"]])
    judge_computing(look, reports[0]["plain"])


def judge_parameters(look: Look, report: dict[str, Any]) -> None:
    """Kept in fp32."""
    low = [name for name, kind in report["parameters"].items() if kind != "float32"]
    if low:
        raise Diagnosis(
            "parameters-not-fp32",
            saw=f"with precision='bf16' the parameter {low[0]} is {report['parameters'][low[0]]} itself.",
            means="In bf16 small updates are rounded away. The policy casts for computing; the parameters stay.",
            look=look(r"\.bfloat16\(|\.to\(.*(bfloat16|HALF|dtype)|\.half\(", r"bfloat16", POLICY),
        )


def judge_computing(look: Look, report: dict[str, Any]) -> None:
    """Forward and backward pass in bf16, in every layer."""
    error, computed = one_line(report["error"], 160), report["computed"]
    if "got Float and BFloat16" in error and not computed:
        raise Diagnosis(
            "inputs-not-cast",
            saw=f"a forward pass in bf16 raised {error}",
            means="The first block was handed fp32 images: a policy casts them, unless it is told not to.",
            look=look(r"cast_forward_inputs", BLOCK_CALL, POLICY),
        )
    if "got Float and BFloat16" in error:
        blocks, root = policies(look)
        raise Diagnosis(
            "blocks-hand-out-fp32",
            saw=f"a forward pass in bf16 raised {error}",
            means="A block gave fp32 to a layer with bf16 weights: output_dtype is for the root alone.",
            look=look(BLOCK_CALL, POLICY)
            if blocks and blocks == root
            else blocks or look(r"output_dtype", POLICY),
        )
    others = sorted(set(computed.values()) - {"bfloat16"})
    if not others and not error:
        return
    if "got BFloat16 and Float" in error or (others and "bfloat16" in computed.values()):
        plain = ", ".join(name for name, kind in computed.items() if kind != "bfloat16")
        without = look(r"fully_shard\((?!.*(mp_policy|\*\*)).*\)")
        raise Diagnosis(
            "precision-not-everywhere",
            saw=f"a forward pass in bf16 raised {error}"
            if error
            else f"{plain} computed in fp32, others in bf16.",
            means="Blocks and root each need the policy: every fully_shard call takes its own mp_policy.",
            look=without if line_of(without) else policies(look)[1] or look(POLICY),
        )
    if error:
        raise Diagnosis(
            "bf16-failed",
            saw=f"a training step with precision='bf16' raised {error}",
            means="The model cannot be trained like this.",
            look=look(POLICY, r"fully_shard\("),
        )
    if others == ["float32"]:
        raise Diagnosis(
            "precision-ignored",
            saw="with precision='bf16' every layer still computed in fp32.",
            means="Nothing is faster or smaller: without a MixedPrecisionPolicy, fully_shard keeps fp32.",
            look=look(r"\bif\b", POLICY, r"fully_shard\("),
        )
    raise Diagnosis(
        "not-bf16",
        saw=f"with precision='bf16' the layers computed in {', '.join(others)}.",
        means="bf16 has the range of fp32; other types need their gradients scaled.",
        look=look.source_of("MixedPrecisionPolicy", "param_dtype", 0) or look(r"param_dtype", POLICY),
    )


def policies(look: Look) -> tuple[str, str]:
    """Where the policy comes from that is handed over for the blocks, and for the root; "" if unknown."""
    blocks, root = (
        look.source_of("fully_shard", "mp_policy", first=first, like=r"output_dtype")
        for first in (r"^(?!model$)", r"^model$")
    )
    return blocks, root


def judge_gradients(look: Look, reports: Sequence[dict[str, Any]], precision: str) -> None:
    """Summed in fp32."""
    named = [pair for report in reports for pair in report["gradients"].items()]
    gradients = [value for name, value in named if not name.startswith(BATCHNORM)]
    low, bits = {"bf16": (torch.bfloat16, 8), "fp16": (torch.float16, 11)}[precision]
    usable = gradients and all(isinstance(value, Tensor) and value.is_floating_point() for value in gradients)
    if not usable:
        raise Diagnosis(
            "gradients-not-reduced",
            saw=f"with precision={precision!r} the sharded parameters have no gradients after backward().",
            means="The optimizer would change nothing.",
            look=look(r"gradient_sync", r"fully_shard\("),
        )
    # A sum of 16-bit numbers in fp32 has digits that they lack; one that was computed in 16 bits has none.
    if all(torch.equal(value.to(low).to(value.dtype), value) for value in gradients):
        raise Diagnosis(
            f"gradients-summed-in-{precision}",
            saw=f"with precision={precision!r} every gradient has only the {bits} bits of a {precision} number.",
            means=f"Summed in {precision} over many ranks, small gradients vanish: reduce_dtype must be fp32.",
            look=in_helpers(look, r"reduce_dtype")
            or in_helpers(look, r"param_dtype")
            or in_classes(look, r"param_dtype")
            or look(POLICY),
        )


def judge_logits(look: Look, logits: str, precision: str) -> None:
    """Handed out in fp32."""
    if logits != "float32":
        blocks, root = policies(look)
        raise Diagnosis(
            "logits-not-fp32",
            saw=f"with precision={precision!r} the logits come out as {logits}.",
            means="Too coarse for an exact loss: the model's own policy has output_dtype=torch.float32 besides.",
            look=dropped
            if line_of(dropped := look(r"^(dataclasses\.)?replace\("))
            else root
            if root and root != blocks
            else options_of_root(look) or look(r"fully_shard\(model", r"output_dtype", POLICY),
        )


def options_of_root(look: Look) -> str:
    """Where the policy comes into the dict that the call for the model itself unpacks; "" where it unpacks none.

    Or where that dict was made or changed last, if nowhere by name.
    """
    _, _, node = look.source()
    for call in reversed(calls_of(node, "fully_shard") if node else []):
        names = {one.value.id for one in call.keywords if not one.arg and isinstance(one.value, ast.Name)}
        by_itself = "mp_policy" in [one.arg for one in call.keywords]
        if not names or by_itself or not call.args or ast.unparse(call.args[0]) != "model":
            continue
        given = [
            ("mp_policy" in ast.unparse(part), part.lineno)
            for part in ast.walk(node)  # type: ignore[arg-type]
            if isinstance(part, ast.Assign | ast.AugAssign | ast.Expr)
            and part.lineno < call.lineno
            and names & _changed_by(part)
        ]
        return look.line(max(given)[1]) if given else ""
    return ""


def _changed_by(part: ast.Assign | ast.AugAssign | ast.Expr) -> set[str]:
    """The variables that a statement assigns to, or of which it assigns a part or calls a method."""
    if isinstance(part, ast.Expr):
        return {root_of(part.value)}
    return {root_of(one) for one in (part.targets if isinstance(part, ast.Assign) else [part.target])}


def judge_batchnorm(look: Look, report: dict[str, Any]) -> None:
    wrong = outer_first(report["order"])
    if wrong and wrong[1] == BATCHNORM:
        raise Diagnosis(
            "batchnorm-after-block",
            saw=f"fully_shard was called for {wrong[0] or 'the model'} first, and then for the BatchNorm in it.",
            means="The block has taken BatchNorm's weights into its bf16 by then: shard_batchnorms comes first.",
            look=look(r"shard_batchnorms", r"[Bb]atch_?[Nn]orm", r"fully_shard\("),
        )
    statistics = set(report["statistics"].values())
    if not report["error"] and statistics <= {"float32"}:
        return
    raise Diagnosis(
        "batchnorm-in-bf16",
        saw=f"with a BatchNorm in a block, a step in bf16 raised {one_line(report['error'], 160)}"
        if report["error"]
        else f"the running statistics of a BatchNorm are {', '.join(map(str, statistics))}.",
        means="BatchNorm's statistics stay in fp32, so it cannot have bf16 weights. shard_batchnorms sees to it.",
        look=look(r"batchnorm", r"param_dtype", r"mp_policy|fully_shard\("),
    )


def judge_fp16(look: Look, report: dict[str, Any]) -> None:
    """The same for fp16, where bf16 is right already."""
    computed = sorted(set(report["computed"].values()))
    if not report["error"] and computed == ["float16"]:
        return
    if report["error"]:
        raise Diagnosis(
            "fp16-failed",
            saw=f"bf16 is right, but with precision='fp16' a step raised {one_line(report['error'], 160)}",
            means="Both are 16 bits: whatever is done for bf16, BatchNorm's exception too, is for fp16 as well.",
            look=look(r"precision\s*(==|in\b)", POLICY),
        )
    raise Diagnosis(
        "fp16-ignored",
        saw=f"bf16 is right, but with precision='fp16' layers computed in {' and '.join(computed)}.",
        means="--precision fp16 would be another run than it says: HALF has the type for each of the two.",
        look=look(
            *([r"bfloat16"] if computed == ["bfloat16"] else []), r"precision\s*(==|in\b)", r"param_dtype", POLICY
        ),
    )
