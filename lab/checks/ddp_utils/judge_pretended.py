"""Judges what get_ddp_model() does in machines that are only pretended: its GPU, the CPU beside GPUs, one rank."""

import re

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers
from lab.checks.common.report import remembered
from lab.grading.diagnosis import Diagnosis

NOT_ALL_RANKS = "A gradient must be averaged over every rank: the default group has them all, so name no other."

DDP = "DistributedDataParallel"

PRETENDED = (
    None,
    {
        "steps": [str], "device_ids": str, "wrapped": bool, "exchanged": [str], "thawed": bool,
        "bucket_cap_mb": float, "switched_off": [str], "output_device": str, "all_ranks": bool,
    },
)  # fmt: skip

MOVES = r"\.to\(|\.cuda\("

# Where the model is wrapped.
WRAPPING = (r"Parallel\(", r"\breturn\b")


def judge_kept(look: Look, report: dict) -> None:
    """Each call wraps the model that it is given."""
    asked = {"gpu": "for a GPU", "cpu": "for the CPU, in a machine with GPUs", "alone": "in a world of one rank"}
    for key, where in asked.items():
        if report[key] and report[key]["wrapped"] and "wrap" not in report[key]["steps"]:
            raise remembered(
                look,
                f"{where} get_ddp_model() wrapped nothing, and returned a wrapper that an earlier call had made "
                "of another model.",
            )


def judge_device(look: Look, gpu: dict | None, rank: int, index: int) -> None:
    """On its device before it is wrapped, and wrapped for this device."""
    if gpu is None:
        return
    steps, device_ids = gpu["steps"], gpu["device_ids"]
    wrapped = steps.index("wrap") if "wrap" in steps else len(steps)
    before = [step for step in steps[:wrapped] if step != "no device"]
    after = [step for step in steps[wrapped + 1 :] if step != "no device"]
    moves = look(MOVES, r"Parallel\(")
    if not before:
        raise Diagnosis(
            "wrapped-before-on-device" if after else "not-on-device",
            saw=f"for device cuda:{index} the model was "
            + ("wrapped first and moved afterwards." if after else "wrapped without being moved there."),
            means="DDP sets up its buckets where the parameters are at that moment: they must be on the GPU.",
            look=moves if line_of(look(MOVES)) else look.source_of(DDP, "module", 0) or moves,
        )
    if before[-1] not in (f"cuda:{index}", "cuda"):
        raise Diagnosis(
            "wrong-device",
            saw=f"rank {rank} was given cuda:{index}, but moved the model to {before[-1]}.",
            means="Ranks of one node would meet on the same GPU, or look for one that is not there.",
            look=moves,
        )
    if device_ids not in ("None", f"cuda:{index}"):
        raise Diagnosis(
            "wrong-device-ids",
            saw=f"rank {rank} was given cuda:{index}, but handed DDP the device_ids {device_ids}.",
            means="device_ids holds the one GPU of this process: the device, whose number need not be the rank.",
            look=look.source_of(DDP, "device_ids", 1, like=r"\[|get_rank")
            or look(r"\bids\s*=\s*\[", r"get_rank\(", r"device_ids", r"Parallel\("),
        )


def judge_cpu(look: Look, cpu: dict | None) -> None:
    """A model on the CPU stays there, although the machine has GPUs."""
    if cpu is None:
        return
    if moved := next((step for step in cpu["steps"] if step.startswith("cuda")), ""):
        raise Diagnosis(
            "wrong-device",
            saw=f"for device cpu, in a machine with GPUs, the model was moved to {moved}.",
            means="`device` says where the model lives, whatever else the machine has.",
            look=look(r"\.cuda\(|is_available", MOVES),
        )
    if cpu["device_ids"] != "None" or cpu["output_device"] != "None":
        raise Diagnosis(
            "device-ids-on-cpu",
            saw=f"for device cpu, in a machine with GPUs, DDP was handed the device_ids {cpu['device_ids']}.",
            means="It refuses them for a model on the CPU: ask device.type, not what the machine has.",
            look=asked_by(look, look.source_of(DDP, "device_ids", 1, like=r"\["))
            or look(r"is_available", *WRAPPING),
        )


def asked_by(look: Look, place: str) -> str:
    """The innermost `if` around a line of the function, which has asked the wrong thing; the line without one."""
    text = place.partition("  ")[2].removesuffix("...")
    return (look.under(re.escape(text)) if line_of(place) else "") or place


def judge_output(look: Look, gpu: dict, rank: int, index: int) -> None:
    """Results stay on this process's GPU."""
    if gpu["output_device"] not in ("None", "cuda", f"cuda:{index}"):
        raise Diagnosis(
            "wrong-output-device",
            saw=f"rank {rank} was given cuda:{index}, but has the logits sent to {gpu['output_device']}.",
            means="The labels are on the rank's own GPU, where DDP leaves the logits if nothing is said.",
            look=look(r"output_device", *WRAPPING),
        )


def judge_pretended_groups(look: Look, report: dict, rank: int) -> None:
    for device in ("gpu", "cpu"):
        if report[device] and not report[device]["all_ranks"]:
            raise Diagnosis(
                "not-all-ranks",
                saw=f"in a machine with 8 GPUs rank {rank} hands DDP a group that is not that of all ranks.",
                means=NOT_ALL_RANKS,
                look=group_at(look),
            )


def group_at(look: Look) -> str:
    """The line that makes the group which is handed to DDP."""
    made = r"new_\w*group"
    source = look.source_of(DDP, "process_group", like=made)
    return source or in_helpers(look, made) or look(r"process_group", *WRAPPING)


def judge_network(look: Look, report: dict) -> None:
    """It is wrapped as it is, on a single rank too."""
    for pretended in filter(None, (report["gpu"], report["cpu"])):
        if exchanged := pretended["exchanged"]:
            raise Diagnosis(
                "layers-exchanged",
                saw=f"a network with a BatchNorm has a {exchanged[0]} in its place after get_ddp_model().",
                means="It is another network than one device trains, and SyncBatchNorm runs on GPUs only.",
                look=look(r"SyncBatchNorm|sync_batchnorm", r"Parallel\("),
            )
        if pretended["thawed"]:
            raise Diagnosis(
                "unfrozen",
                saw="a parameter with requires_grad=False can be trained after get_ddp_model().",
                means="What was frozen on purpose would be changed: wrapping must leave that as it is.",
                look=look(r"requires_grad", r"Parallel\("),
            )
    if report["alone"] and not report["alone"]["wrapped"]:
        raise Diagnosis(
            "not-wrapped",
            saw="in a world of one rank get_ddp_model() returned the bare model.",
            means="The program asked for DDP. On one rank it must still be DDP, or the sweep compares two things.",
            look=look(r"world_size", r"\breturn\b"),
        )
