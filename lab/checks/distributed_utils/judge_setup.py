"""Judges setup(): the group that was joined, the device that was chosen, and where the ranks were to meet."""

import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.look_around import in_helpers, origin_of
from lab.checks.common.report import ERROR, expect, expect_as_many
from lab.checks.distributed_utils.judge_joined import judge_joined, judge_left_behind, judge_told
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

VISIBLE = "CUDA_VISIBLE_DEVICES"

BACKENDS = {"", "nccl", "gloo"}  # "" leaves the choice to PyTorch

CALL = {
    "gpus": int, "error": (None, ERROR), "type": str, "device": str, "events": [{"call": str}], "rank": int,
    "world_size": int,
}  # fmt: skip


def judge_setup(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    """Raise the diagnosis of the first thing that is wrong, here and then on simulated machines.

    Args:
        given: what the ranks received.
    """
    expect(
        reports,
        {"real": CALL, "simulated": [CALL], "total": float, "groups": int, "at_exit": (None, ERROR)},
    )
    world_size, timeout = len(reports), given["timeout"]
    compared("sum of ones over the group", [report["total"] for report in reports], float(world_size))
    compared("device, without a GPU", [report["real"]["device"] for report in reports], "cpu")
    inits: list[dict[str, Any]] = []
    for rank, report in enumerate(reports):
        place = f"rank {rank} of {world_size}"
        with part("joins on a CPU"):
            init = judge_joined(look, report["real"], rank, world_size, place, timeout)
            judge_on_cpu(look, init, report["real"], rank)
            judge_sum(look, report["total"], rank, world_size)
            inits.append(init)
    with part("joins on a CPU"):
        judge_left_behind(look, reports)
    expect_as_many([reports[0]["simulated"]], len(given["machines"]))
    simulated = list(zip(given["machines"], reports[0]["simulated"], strict=True))
    by_rank = all(follows_rank(machine, call) for machine, call in simulated)
    for machine, call in simulated:
        (rank, local_rank, world_size), gpus = machine["place"], machine["gpus"]
        place = f"simulated with {machine['name']}, rank {rank}, local rank {local_rank}, {gpus} GPU"
        place += f"{'s' * (gpus > 1)} visible" + (f", {VISIBLE}={machine['shown']}" if "shown" in machine else "")
        if call["error"] and re.search("NVIDIA|CUDA", searchable(call["error"]["message"])):
            continue  # it asks a GPU for what only a real one has
        compared(place, [call["device"]], f"cuda:{machine['index']}")
        joined: dict[str, Any] = {}
        with part("joins as torchrun or srun says"):
            joined = judge_joined(look, call, rank, world_size, place, machine["timeout"])
        with part("a GPU of its own, and nccl"):
            judge_on_gpus(look, joined, call, machine, by_rank, place)
        with part("joins as torchrun or srun says"):
            judge_master(look, joined["master"], given["master"], place)
    with part("joins as torchrun or srun says"):
        judge_told(look, reports[0])
    for rank, init in enumerate(inits):  # last, since any name of this machine is right here
        with part("joins on a CPU"):
            judge_master(look, init["master"], init["agreed"], f"rank {rank} of {len(reports)}")


def judge_sum(look: Look, total: float, rank: int, world_size: int) -> None:
    """Of a one on every rank."""
    if total != world_size:
        raise Diagnosis(
            "no-process-group",
            saw=f"a sum of ones over the group was {total} instead of {world_size} on rank {rank}.",
            means="The ranks have not found each other.",
            look=look(r"init_process_group"),
        )


def judge_on_cpu(look: Look, init: dict[str, Any], call: dict[str, Any], rank: int) -> None:
    if "nccl" in init["backend"]:
        raise Diagnosis(
            "nccl-hard-coded",
            saw=f"rank {rank}, without a GPU: the backend was {init['backend']!r}.",
            means="nccl works between GPUs only; without CUDA the group must use gloo.",
            look=look(r"nccl", last=True),
        )
    if init["device_id"] is not None:
        raise Diagnosis(
            "device-id-on-cpu",
            saw=f"rank {rank}, without a GPU: init_process_group got device_id={init['device_id']}.",
            means="PyTorch refuses device_id for the CPU; it is for GPUs only.",
            look=look(r"device_id"),
        )
    if not call["device"].startswith("cpu"):
        raise Diagnosis(
            "no-gpu-there",
            saw=f"rank {rank}, without a GPU: setup() returned {call['device']}.",
            means="Moving the model there fails.",
            look=look(r"\breturn\b.*cuda", r"cuda"),
        )


def device_numbers(call: dict[str, Any]) -> list[int]:
    """The GPU that was returned, and those that were made the current one; -1 is a device without a number."""
    events = [event for event in call["events"] if event["call"] == "set_device"]
    expect(events, {"index": int})
    chosen, number = [event["index"] for event in events], call["device"].partition(":")[2]
    return [int(number) if number.isdecimal() else chosen[-1] if chosen else -1, *chosen]


def follows_rank(machine: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether a GPU was chosen by the rank; of one GPU that tells nothing."""
    rank, gpus = machine["place"][0], machine["gpus"]
    return gpus == 1 or bool({rank, rank % gpus} & set(device_numbers(call)))


def judge_on_gpus(
    look: Look, init: dict[str, Any], call: dict[str, Any], machine: dict[str, Any], by_rank: bool, place: str
) -> None:
    """The backend, and the GPU of this machine.

    Args:
        by_rank: whether the rank gave the number of the GPU on all the machines; on one it may be chance.
    """
    index, rank = machine["index"], machine["place"][0]
    if init["backend"] == "gloo" and call["device"].startswith("cpu"):
        raise Diagnosis(
            "gpu-not-used",
            saw=f"{place}: setup() took the CPU and gloo.",
            means="torch.cuda.is_available() is the same on all ranks: by another condition they part, and wait.",
            look=look(r"\bif\b.*(cuda|gpu|device)", r"(cuda|gpu|device).*\bif\b", r"gloo"),
        )
    if "gloo" in init["backend"] and "nccl" not in init["backend"]:
        raise Diagnosis(
            "gloo-hard-coded",
            saw=f"{place}: the backend was gloo.",
            means="gloo sends every gradient through the CPU: on GPUs it is many times slower than nccl.",
            look=look(r"gloo"),
        )
    if unknown := {name.rpartition(":")[2] for name in init["backend"].split(",")} - BACKENDS:
        raise Diagnosis(
            "unknown-backend",
            saw=f"{place}: the backend was {min(unknown)!r}.",
            means="PyTorch has no such backend, and raises an error there.",
            look=look(re.escape(min(unknown)), r"nccl", r"init_process_group"),
        )
    if not call["device"].startswith("cuda"):
        raise Diagnosis(
            "gpu-not-used",
            saw=f"{place}: setup() returned {call['device']}.",
            means="The model would train on the CPU beside an idle GPU.",
            look=look(r"\breturn\b"),
        )
    calls = [event["call"] for event in call["events"]]
    returned, *chosen = device_numbers(call)
    for number in [returned, *chosen]:
        if number == index or (not chosen and number == -1):
            continue
        own = origin_of(look, *(("set_device", "device") if number in chosen else ("device", "set_device")))
        if by_rank and number in (rank, rank % machine["gpus"]):
            raise Diagnosis(
                "rank-as-device-index",
                saw=f"{place}: the device was cuda:{number}.",
                means="The rank counts over all nodes, but a node numbers its GPUs from 0: use the local rank.",
                look=own or look(r"(device|index|gpu|cuda).*\brank\b", r"device\(|set_device"),
            )
        raise Diagnosis(
            "wrong-device-index",
            saw=f"{place}: the device was cuda:{number}, and it should be cuda:{index}.",
            means="What a process is shown it counts from 0 again, whatever the GPUs' numbers in the node are."
            if str(number) in machine.get("shown", "").split(",")
            else "A process that is shown one GPU finds it at index 0."
            if machine["gpus"] == 1
            else "What a process sees torch.cuda.device_count() says. Not every launcher sets the variable."
            if VISIBLE in look(VISIBLE)
            else "Each process of a node needs a GPU of its own: the one with the number of its local rank.",
            look=(own if "shown" in machine else "")
            or in_helpers(look, rf"{VISIBLE}|(environ|getenv).*LOCAL")
            or own
            or look(r"index\s*=", r"device\("),
        )
    if not chosen:
        in_a_block = "device" in calls
        raise Diagnosis(
            "no-set-device",
            saw=f"{place}: torch.cuda.set_device was not called."
            + " The device is the current one in a `with` only." * in_a_block,
            means="Whatever asks for 'the GPU' gets GPU 0: all processes of a node would fill its memory.",
            look=look.under(r"set_device\(")
            or look(
                *([r"\bwith\b.*device|\.device\((?!\s*[\"'])"] if in_a_block else []),
                r"device\(\s*f?[\"']cuda",
                r"init_process_group",
            ),
        )
    if calls.index("set_device") > calls.index("init_process_group"):
        raise Diagnosis(
            "set-device-after-group",
            saw=f"{place}: init_process_group came first, then set_device.",
            means="NCCL takes the GPU that is current when the group comes up: that was GPU 0 on every process.",
            look=look(r"set_device"),
        )


def judge_master(look: Look, master: str, agreed: str, place: str) -> None:
    """Rank 0 is where the launcher says, on whatever node, and listens at the port that the launcher says.

    Args:
        master: host:port of the call; empty where it cannot be told.
    """
    (host, _, port), (said, _, said_port) = master.partition(":"), agreed.partition(":")
    if host not in ("", said):
        raise Diagnosis(
            "master-hard-coded",
            saw=f"{place}: the ranks were to meet at {host}; MASTER_ADDR was {said}.",
            means="On every other node they would look for rank 0 on their own machine, and wait for ever.",
            look=look(r"MASTER_ADDR|tcp://|localhost|127\.0", r"init_process_group"),
        )
    if port not in ("", said_port):
        raise Diagnosis(
            "port-hard-coded",
            saw=f"{place}: the ranks were to meet at port {port}; MASTER_PORT was {said_port}.",
            means="The launcher has said which port is free there. At one of your own another job may listen.",
            look=look(rf"tcp://.*{port}|MASTER_PORT.*=.*{port}", r"MASTER_PORT.*=|tcp://", r"init_process_group"),
        )
