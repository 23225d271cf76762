"""Judges what a rank keeps between two steps: its shard and that one's gradient, and nothing that is whole."""

from typing import Any

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import first_of
from lab.checks.common.syntax import rebound
from lab.grading.diagnosis import Diagnosis


def judge_freed(look: Look, rank: int, report: dict[str, Any], length: int) -> None:
    """Behind a step there are the shard and its gradient."""
    weights, gradients = map(max, zip(report["whole at start"], report["whole after"], strict=True))
    what = " and ".join(["parameters"] * bool(weights) + ["gradients"] * bool(gradients))
    if what:
        raise Diagnosis(
            "whole-weights-kept" if weights else "whole-gradients-kept",
            saw=f"outside of a step the {what} of rank {rank} keep {weights + gradients} numbers in memory.",
            means=f"Between steps a rank has its shard, {length} numbers, and that one's gradient."
            if weights
            else "Whole gradients need as much memory as whole parameters, zeroed too: set each .grad to None.",
            look=first_of(look, rebound) or look(r"\.data\b", r"resize|set_\(", r"for ")
            if weights
            else look(r"\.grad(\.|\[| =|,)|zero_grad", r"grad", r"\.data\b", r"for "),
        )


def judge_memory(look: Look, rank: int, report: dict[str, Any], length: int) -> None:
    """What is whole is nowhere else either."""
    if report["alive"] > 1.5 * 8 * length:
        kept = r"self\.(?!shard\b|shapes|sizes|parameters)\w+(\[.*\])? =|self\.\w+\.append"
        keeps = [look.into(f"MyHSDP.{name}")(kept) for name in ("gather", "reduce")]
        raise Diagnosis(
            "whole-kept-elsewhere",
            saw=f"after a step {report['alive'] // 4} numbers were alive on rank {rank}; shard and gradient have "
            f"{2 * length}.",
            means="What is whole must be free to go: nothing may hold it after the step.",
            look=next((place for place in keeps if line_of(place)), look.line(report["largest"])),
        )
