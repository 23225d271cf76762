"""Judges whether the network leaves its images, its device and its precision to the caller."""

import re
from typing import Any

import torch
from torch import Tensor

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.report import error_place, error_text
from lab.checks.model.judge_logits import OTHER_TYPES, SLICED, raised
from lab.grading.diagnosis import Diagnosis

# PyTorch, where somebody asks for a number of a tensor that has none.
NUMBERS_READ = r"item\(\) cannot be called on meta|copy out of meta|can't convert meta"


def judge_manners(look: Look, report: dict[str, Any]) -> None:
    """The images are left as they were, and the results are where they are."""
    if report["changed"]:
        raise Diagnosis(
            "images-changed",
            saw="after the forward pass the images that were handed in are others than before.",
            means="It changes the caller's batch, and with it a data set that is kept in memory: every epoch "
            "once more.",
            look=look(r"\w_\(|[-+*/]=|\[.*\]\s*=(?!=)"),
        )
    if report["elsewhere"]:
        raise Diagnosis(
            "device-written-down",
            saw=f"with network and images on a GPU (here only pretended): {report['elsewhere']}.",
            means="The network must compute where its weights are: its device is for the caller to choose.",
            look=look(
                r"\.(to|cpu|cuda)\(|device\s*=",
                r"cpu|cuda|torch\.(zeros|ones|empty|full|tensor|rand)",
                r"\breturn\b",
            ),
        )


def judge_precision(look: Look, dtypes: list[torch.dtype], report: dict[str, Any]) -> None:
    """In float32 the network computes in float32, and in bfloat16 where the run has asked autocast for that.

    Args:
        dtypes: of the logits of float32 images.
    """
    found = [dtype for dtype in dtypes if dtype != torch.float32]
    if not found and not report["autocast"]:
        return
    raise Diagnosis(
        "dtype-changed",
        saw=f"float32 weights and images gave {found[0]} logits.".replace("torch.", "")
        if found
        else f"forward() enters autocast itself, for {report['autocast'][0]}, and so overrules the run's.",
        means="--precision chooses the type, and --no-amp leaves it as it is: the network takes what it is given.",
        look=look(r"autocast", r"float|half|double|\.to\(", r"\breturn\b"),
    )


def judge_on_gpu(look: Look, logits: Tensor, report: dict[str, Any]) -> None:
    """On a GPU it computes what it computes on the CPU.

    Args:
        logits: of the same images on the CPU.
    """
    where = "with network and images on a GPU (here only pretended) the network"
    value, error = report["on_gpu"]["value"], report["on_gpu"]["error"]
    judge_precision(look, [], {"autocast": report["autocast_on_gpu"]})
    if error and re.search(OTHER_TYPES, searchable(error["message"])):
        raised(error, where, look)
    if error or not isinstance(value, Tensor) or value.shape != logits.shape:
        return  # it asks a GPU for what only a real one has
    if value.dtype != logits.dtype or not torch.allclose(value, logits, atol=1e-5):
        raise Diagnosis(
            "other-on-gpu",
            saw=f"{where} gave other logits than on the CPU.",
            means="The same network has to train on both: what is computed is not for the device to say.",
            look=look(r"cuda", r"device", r"\breturn\b"),
        )


def judge_reads(look: Look, report: dict[str, Any]) -> None:
    """The network goes by shapes only, and leaves the precision to the run's autocast."""
    error = report["large"]["error"]
    if error and re.search(NUMBERS_READ, searchable(error["message"])):
        raise Diagnosis(
            "numbers-read",
            saw=f"on a device without numbers, which has shapes only, forward() raised {error_text(error)}",
            means="Python waits for the GPU wherever it reads a number, and --capture cannot record that.",
            look=error_place(error, look),
        )
    if report["computed_in"] not in ([], ["bfloat16"]):
        raise Diagnosis(
            "dtype-changed",
            saw=f"under autocast for bfloat16 the convolutions computed in {' and '.join(report['computed_in'])}.",
            means="--precision chooses the type: the network takes what it is given.",
            look=look(r"autocast", r"float|half|double|\.to\(", r"\breturn\b"),
        )


def judge_large(look: Look, size: int, sizes: list[int], report: dict[str, Any]) -> None:
    """A large batch goes through too."""
    error, shape = report["large"]["error"], report["large"]["shape"]
    if error and ("AssertionError" in error["bases"] or error["text"].startswith("raise")):
        raise Diagnosis(
            "fixed-batch-size",
            saw=f"a batch of {size} images raised {error_text(error)}; one of {max(sizes)} goes through.",
            means="How many images a rank gets is for --per-device-batch-size to say: B must stay free.",
            look=error_place(error, look),
        )
    if shape and shape != [size, 10]:
        raise Diagnosis(
            "wrong-shape",
            saw=f"a batch of {size} images gave a result of shape {shape}; one of {max(sizes)} is all right.",
            means="Each image of the batch needs its row of logits, however many there are.",
            look=look(SLICED, r"\breturn\b"),
        )
