"""Judges the network as one rank of several: it gives what it gives alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many
from lab.grading.diagnosis import Diagnosis

# What makes something of the world: by name, and of a part of the batch.
PARTS = (
    r"\.(chunk|split|tensor_split|narrow|index_select)\(|torch\.(chunk|split|tensor_split|narrow)\(",
    r"\[[^\]]*(rank|world)[^\]]*\]",
    r"all_reduce|all_gather|gather|broadcast|scatter",
    r"get_rank|get_world_size|is_initialized|environ|getenv|(?i:\brank\b|world)",
)


def judge_world(look: Look, given: dict[str, Any], reports: Sequence[Any]) -> None:
    """Args: `given` is what the rank received."""
    expect(reports, [{"alone": (None, Tensor), "in_world": (None, Tensor), "error": (None, ERROR)}])
    expect_as_many(reports, len(given["batches"]))
    for images, report in zip(given["batches"], reports[0], strict=True):
        alone, now, error = report["alone"], report["in_world"], report["error"]
        where = f"as rank {given['rank']} of {given['world_size']}, a batch of {len(images)} images"
        if alone is None:
            continue  # whatever is wrong with it without a group was said
        if error or now is None:
            saw = f"{where} raised {error_text(error)}" if error else f"{where} gave no tensor"
        elif now.shape != alone.shape:
            saw = f"{where} gave a result of shape {list(now.shape)}"
        elif not torch.allclose(now, alone, atol=1e-5, equal_nan=True):
            saw = f"{where} gave other logits"
        else:
            continue
        asked = next((place for one in PARTS if line_of(place := in_helpers(look, one))), "")
        raise Diagnosis(
            "other-on-ranks",
            saw=f"{saw}; without a process group it gives logits {list(alone.shape)}.",
            means="What a rank gets is its part of the batch already: each of its images needs its row of logits.",
            look=error_place(error, look) if error else asked or look(r"\breturn\b"),
        )
