"""Judges what load_once() asks of nccl and of a GPU, of which the ranks of a check have neither."""

import re
from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import expect
from lab.grading.diagnosis import Diagnosis

NCCL_CALL = {"call": str, "gloo": bool, "cpu": bool, "devices": [int]}


def judge_nccl(look: Look, given: dict[str, Any], reports: Sequence[Any]) -> None:
    """What load_once() asks of a group of nccl can be done there.

    Args:
        given: where the only rank seems to be.
        reports: its calls, as the first of its file system and as another one.
    """
    expect(reports, [[NCCL_CALL]])
    for call in [one for calls in reports[0] for one in calls if not one["gloo"]]:
        if call["call"] == "monitored_barrier":
            raise Diagnosis(
                "barrier-of-gloo-only",
                saw="with nccl, as on GPUs: monitored_barrier() was called, which only gloo has.",
                means="load_once() would raise there. dist.barrier() works with both.",
                look=look(r"monitored_barrier"),
            )
        if call["cpu"]:
            raise Diagnosis(
                "tensor-on-the-cpu",
                saw=f"with nccl, as on GPUs: {call['call']}() was given a tensor on the CPU.",
                means="nccl goes from GPU to GPU, and raises for any other tensor. dist.barrier() needs none.",
                look=look(rf"\b{re.escape(call['call'])}\("),
            )
        if call["devices"] and call["devices"] != [given["gpu"]]:
            raise Diagnosis(
                "barrier-of-another-gpu",
                saw=f"rank {given['rank']} of {given['world_size']}, on GPU {given['gpu']} of its machine's "
                f"{given['gpus']}: {call['call']}(device_ids={call['devices']}).",
                means="A GPU's number counts on its machine, a rank over all: without it, setup()'s is taken.",
                look=look(r"device_ids"),
            )
