"""Checks of section 2: ranks, devices and the process group."""

import random
import re
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, fail
from lab.checks.distributed_utils.judge_environments import FIELDS, READ, draw_cases, judge_environments
from lab.checks.distributed_utils.observe import join_group, leave_group, read_environments
from lab.grading.check import Group, Order, check
from lab.grading.diagnosis import Diagnosis

FILE = "distributed_utils.py"


# 2.1 --------------------------------------------------------------------------------------------------------


@check("2.1", "reads torchrun's and srun's variables, and refuses to guess")
def reads_the_launch_environment(group: Group) -> None:
    decoy = {"RANK": "17", "LOCAL_RANK": "3", "WORLD_SIZE": "23"}  # in os.environ, to see what is read
    cases = draw_cases()
    given = {"decoy": decoy, "environments": [case.environ for case in cases]}
    reports = group.observe(Order(read_environments, 1, given, set_up_process_group=False))
    expect(reports, [{"type": str, "error": (None, ERROR), "changed": [str], **dict.fromkeys(FIELDS, (int, str))}])
    expect_as_many(reports, len(cases))
    judge_environments(Look(group.code, FILE, READ), cases, reports[0], [int(value) for value in decoy.values()])


# 2.2 --------------------------------------------------------------------------------------------------------

EVENT = {"call": str}
CALL = {
    "gpus": int,
    "error": (None, ERROR),
    "type": str,
    "device": str,
    "events": [EVENT],
    "rank": int,
    "world_size": int,
}
INIT = {
    "backend": str, "rank": int, "world_size": int, "timeout": (None, float), "device_id": (None, str),
    "master": str,
}  # fmt: skip


@check("2.2", "joins the process group with the backend and device of the machine")
def joins_the_process_group(group: Group) -> None:
    # More than a day, so that a part of it (timeout.seconds) is not the whole. Nodes with four GPUs and three
    # processes, so that the rank gives the GPU of none; nor is it GPU 0 that the rank would give.
    timeout = 86_400 + random.randrange(40, 400)
    node, local = random.choice([(1, 2), (2, 1), (3, 1), (3, 2)])
    rank, world_size, master = 3 * node + local, 12, f"node{random.randrange(10, 99)}"
    torchrun = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world_size)}
    srun = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NTASKS": str(world_size)}
    machines = [
        {"name": "torchrun", "environ": torchrun, "gpus": 4, "index": local},
        {"name": "srun", "environ": srun, "gpus": 4, "index": local},
        {"name": "srun --gpus-per-task=1", "environ": srun, "gpus": 1, "index": 0},
    ]
    given = {"timeout": timeout, "machines": machines, "master": master}
    look = Look(group.code, FILE, "setup")
    reports = group.observe(Order(join_group, 2, given, set_up_process_group=False, timeout=20))
    expect(reports, {"real": CALL, "simulated": [CALL], "total": float})
    for number, report in enumerate(reports):
        judge_joined(look, report["real"], number, 2, f"rank {number} of 2", timeout)
        judge_on_cpu(look, report["real"], number)
        if report["total"] != 2:
            raise Diagnosis(
                "no-process-group",
                saw=f"a sum of ones over the group was {report['total']} instead of 2 on rank {number}.",
                means="The ranks have not found each other.",
                look=look(r"init_process_group"),
            )
    expect_as_many([reports[0]["simulated"]], len(machines))
    for machine, call in zip(machines, reports[0]["simulated"], strict=True):
        place = (
            f"simulated with {machine['name']}, rank {rank}, local rank {local}, {machine['gpus']} GPUs visible"
        )
        judge_joined(look, call, rank, world_size, place.replace(" 1 GPUs", " 1 GPU"), timeout)
        judge_on_gpus(look, call, machine, place.replace(" 1 GPUs", " 1 GPU"), rank)
        judge_master(look, call, master, place.replace(" 1 GPUs", " 1 GPU"))


def init_of(call: dict[str, Any]) -> dict[str, Any] | None:
    """The call of init_process_group that counts: the last one."""
    events = [event for event in call["events"] if event["call"] == "init_process_group"]
    if not events:
        return None
    expect(events, INIT)
    return events[-1]


def judge_joined(look: Look, call: dict[str, Any], rank: int, world_size: int, place: str, timeout: float) -> None:
    """The group must be the launcher's, with the timeout asked for; a device must come back."""
    init = init_of(call)
    line = look(r"init_process_group")
    if init and (init["rank"], init["world_size"]) != (rank, world_size):
        got = f"{place}: the group was to be joined as rank {init['rank']} of {init['world_size']}."
        if -1 in (init["rank"], init["world_size"]):
            raise Diagnosis(
                "srun-not-served",
                saw=f"{place}: init_process_group got no rank and world size, and RANK and WORLD_SIZE are not "
                "set.",
                means="By itself it knows torchrun's variables only: hand it what read_launch_environment "
                "returned.",
                look=line,
            )
        if init["world_size"] != world_size:
            raise Diagnosis(
                "world-size-hard-coded",
                saw=f"{got} The launcher says {world_size} ranks.",
                means="With too few, ranks train without each other; with too many, all wait for ranks that "
                "never come.",
                look=line,
            )
        raise Diagnosis(
            "wrong-rank",
            saw=f"{got} The launcher says rank {rank}.",
            means="Two processes with the same rank wait for ever for the one that is missing.",
            look=line,
        )
    if any(event["call"] == "set_device" and event.get("index") == -1 for event in call["events"]):
        raise Diagnosis(
            "device-without-index",
            saw=f"{place}: torch.cuda.set_device got a device without an index, and raised "
            f"{error_text(call['error'])}"
            if call["error"]
            else f"{place}: torch.cuda.set_device got a device without an index.",
            means="'cuda' alone means the current GPU, and this call is to say which one that is.",
            look=look(r"device\(\s*[\"']cuda[\"']\s*\)", r"set_device"),
        )
    error = call["error"]
    if error and not call["gpus"] and re.search("NVIDIA|CUDA", error["message"]):
        raise Diagnosis(
            "cuda-without-gpu",
            saw=f"{place}, without a GPU: setup() raised {error_text(error)}",
            means="What is for GPUs only belongs where torch.cuda.is_available() has said that there is one.",
            look=error_place(error, lambda: look(r"cuda")),
        )
    if error:
        fail(error, f"{place}: setup()", look)
    if init is None:
        raise Diagnosis(
            "no-process-group",
            saw=f"{place}: setup() has not called init_process_group.",
            means="Without a process group no rank can reach another.",
            look=look(),
        )
    if init["timeout"] != timeout:
        given = "no timeout" if init["timeout"] is None else f"a timeout of {init['timeout']:g} s"
        raise Diagnosis(
            "timeout-ignored",
            saw=f"setup(timeout of {timeout} s) gave init_process_group {given}.",
            means="A job whose rank has died would wait for PyTorch's default, not for what was asked for.",
            look=line,
        )
    if call["type"] != "device":
        raise Diagnosis(
            "no-device",
            saw=f"setup() returned {'None' if call['type'] == 'NoneType' else 'a ' + call['type']}, "
            "not a torch.device.",
            means="The rest of the program puts model and images where this says.",
            look=look(r"\breturn\b"),
        )


def judge_on_cpu(look: Look, call: dict[str, Any], rank: int) -> None:
    init = init_of(call)
    assert init is not None
    if "nccl" in init["backend"]:
        raise Diagnosis(
            "nccl-hard-coded",
            saw=f"rank {rank}, without a GPU: the backend was {init['backend']!r}.",
            means="nccl works between GPUs only; without CUDA the group must use gloo.",
            look=look(r"nccl"),
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


def judge_on_gpus(look: Look, call: dict[str, Any], machine: dict[str, Any], place: str, rank: int) -> None:
    init, index = init_of(call), machine["index"]
    assert init is not None
    if "gloo" in init["backend"] and "nccl" not in init["backend"]:
        raise Diagnosis(
            "gloo-hard-coded",
            saw=f"{place}: the backend was gloo.",
            means="gloo sends every gradient through the CPU: on GPUs it is many times slower than nccl.",
            look=look(r"gloo"),
        )
    if not call["device"].startswith("cuda"):
        raise Diagnosis(
            "gpu-not-used",
            saw=f"{place}: setup() returned {call['device']}.",
            means="The model would train on the CPU beside an idle GPU.",
            look=look(r"\breturn\b"),
        )
    calls = [event["call"] for event in call["events"]]
    chosen = [event.get("index") for event in call["events"] if event["call"] == "set_device"]
    returned = int(call["device"].partition(":")[2] or (chosen[-1] if chosen and chosen[-1] is not None else -1))
    for number in [returned, *chosen]:
        if number == index or (not chosen and number == -1):
            continue
        if number in (rank, rank % machine["gpus"]):
            raise Diagnosis(
                "rank-as-device-index",
                saw=f"{place}: the device was cuda:{number}.",
                means="The rank counts over all nodes, but a node numbers its GPUs from 0: use the local rank.",
                look=look(r"(device|index|gpu|cuda).*\brank\b", r"device\(|set_device"),
            )
        raise Diagnosis(
            "wrong-device-index",
            saw=f"{place}: the device was cuda:{number}, and it should be cuda:{index}.",
            means="A process that is shown one GPU finds it at index 0."
            if machine["gpus"] == 1
            else "Each process of a node needs a GPU of its own: the one with the number of its local rank.",
            look=look(r"index\s*=", r"device\(|set_device"),
        )
    if not chosen:
        raise Diagnosis(
            "no-set-device",
            saw=f"{place}: torch.cuda.set_device was not called.",
            means="Whatever asks for 'the GPU' gets GPU 0: all processes of a node would fill its memory.",
            look=look(r"init_process_group"),
        )
    if calls.index("set_device") > calls.index("init_process_group"):
        raise Diagnosis(
            "set-device-after-group",
            saw=f"{place}: init_process_group came first, then set_device.",
            means="NCCL takes the GPU that is current when the group comes up: that was GPU 0 on every process.",
            look=look(r"set_device"),
        )


def judge_master(look: Look, call: dict[str, Any], master: str, place: str) -> None:
    """Rank 0 is where the launcher says, on whatever node."""
    init = init_of(call)
    assert init is not None
    if init["master"] not in ("", master):
        raise Diagnosis(
            "master-hard-coded",
            saw=f"{place}: the ranks were to meet at {init['master']}; MASTER_ADDR was {master}.",
            means="On every other node they would look for rank 0 on their own machine, and wait for ever.",
            look=look(r"MASTER_ADDR|tcp://|localhost|127\.0", r"init_process_group"),
        )


# 2.3 --------------------------------------------------------------------------------------------------------


@check("2.3", "knows the main process, and leaves the group, if there is one")
def leaves_the_process_group(group: Group) -> None:
    # As if each of the three ranks were alone on its node: all have the local rank 0. Who is which rank, and how
    # often each launcher's turn comes, is drawn: no answer is right every time.
    order = random.sample(["0", "1", "2"], 3)
    launchers = ["torchrun", "srun", *random.choices(["torchrun", "srun"], k=random.randrange(6))]
    environ = {
        "torchrun": {"RANK": order, "LOCAL_RANK": ["0"] * 3, "WORLD_SIZE": ["3"] * 3},
        "srun": {"SLURM_PROCID": order, "SLURM_LOCALID": ["0"] * 3, "SLURM_NTASKS": ["3"] * 3},
    }
    given = {"order": [int(number) for number in order], "environs": [environ[name] for name in launchers]}
    look = Look(group.code, FILE, "cleanup")
    values = group.observe(Order(leave_group, 3, given, set_up_process_group=False))
    reports = [values[order.index(str(rank))] for rank in range(3)]
    attempt = {"error": (None, ERROR)}
    expect(
        reports,
        {"main": [{"value": (None, bool, int, str), **attempt}], "left": [{"still_there": bool, **attempt}]},
    )
    expect_as_many([report["main"] for report in reports], len(launchers))
    expect_as_many([report["left"] for report in reports], 3)
    for launcher, answers in zip(
        launchers, zip(*(report["main"] for report in reports), strict=True), strict=True
    ):
        judge_main_process(look.into("is_main_process"), launcher, list(answers))
    line = look(r"destroy", r"is_initialized")
    for rank, report in enumerate(reports):
        first = report["left"][0]
        if first["error"]:
            fail(first["error"], f"rank {rank}: cleanup()", lambda: line)
        if first["still_there"]:
            raise Diagnosis(
                "group-not-destroyed",
                saw=f"rank {rank}: the process group is still there after cleanup().",
                means="NCCL warns about leaked resources, and a rank that ends can leave the others hanging.",
                look=line,
            )
    for rank, report in enumerate(reports):
        if error := report["left"][1]["error"]:
            raise Diagnosis(
                "cleanup-without-group",
                saw=f"rank {rank}: cleanup() without a process group raised {error_text(error)}",
                means="After an error there may be no group; the error in cleanup() would hide the real one.",
                look=error_place(error, lambda: line),
            )
    for report in reports:
        alone = report["left"][2]
        if alone["error"]:
            fail(alone["error"], "cleanup() of a group of one rank", lambda: line)
        if alone["still_there"]:
            raise Diagnosis(
                "group-not-destroyed",
                saw="a process group of one rank is still there after cleanup().",
                means="A single rank has joined a group too, and leaves it like the others.",
                look=look(r"world_size", r"destroy"),
            )


def judge_main_process(look: Look, launcher: str, answers: list[dict[str, Any]]) -> None:
    line = look(r"\breturn\b")
    if error := next((answer["error"] for answer in answers if answer["error"]), None):
        if "KeyError" in error["bases"] and launcher == "srun":
            raise Diagnosis(
                "rank-from-torchrun-only",
                saw=f"started by {launcher}: is_main_process() raised {error_text(error)}",
                means="srun sets other variables than torchrun. The process group knows the rank in both cases.",
                look=line,
            )
        fail(error, f"started by {launcher}: is_main_process()", lambda: line)
    values = [answer["value"] for answer in answers]
    said = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
    if not all(isinstance(value, bool) for value in values):
        raise Diagnosis(
            "not-a-bool",
            saw=f"is_main_process() returned {said}.",
            means="The answer must be True or False. In an `if`, 0 and None count as no, every other number as "
            "yes.",
            look=line,
        )
    if values == [True, False, False]:
        return
    if sum(values) > 1:
        raise Diagnosis(
            "several-main-processes",
            saw=f"three nodes, started by {launcher}: is_main_process() was {said}.",
            means="All of them would print and write the same files. Every node has a local rank 0, and a GPU 0.",
            look=line,
        )
    raise Diagnosis(
        "wrong-main-process",
        saw=f"three nodes, started by {launcher}: is_main_process() was {said}.",
        means="Rank 0 is the one that prints and writes: without it nothing is recorded.",
        look=line,
    )
