"""Judges the group that setup() joins: the launcher's, with the timeout asked for, and on every rank."""

import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import argument_of, leads_to, swallows
from lab.checks.common.look_values import unreached
from lab.checks.common.report import error_place, error_text, expect, fail
from lab.checks.distributed_utils.draw import TORCHRUN
from lab.checks.distributed_utils.judge_environments import ACCEPTED
from lab.grading.diagnosis import Diagnosis

INIT = {
    "backend": str, "rank": int, "world_size": int, "timeout": (None, float), "device_id": (None, str),
    "master": str, "agreed": str,
}  # fmt: skip

COMPUTED = r"\b(max|min)\(.*timeout|timeout\.\w+|timeout\s*[*/]|[*/]\s*timeout"


def judge_joined(
    look: Look, call: dict[str, Any], rank: int, world_size: int, place: str, timeout: float
) -> dict[str, Any]:
    """The group must be the launcher's, with the timeout asked for; a device must come back.

    Returns the call of init_process_group that counts: the last one.
    """
    inits = [event for event in call["events"] if event["call"] == "init_process_group"]
    expect(inits, INIT)
    init = inits[-1] if inits else None
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
        if init["world_size"] == call["gpus"] and init["world_size"] != world_size:
            raise Diagnosis(
                "gpus-as-world-size",
                saw=f"{got} The launcher says {world_size} ranks.",
                means="The GPUs that a process sees are those of its node: the launcher counts all processes.",
                look=look(r"device_count\(\)(?!\s*(==|>|!=|<))", r"init_process_group"),
            )
        if init["world_size"] != world_size:
            raise Diagnosis(
                "world-size-hard-coded",
                saw=f"{got} The launcher says {world_size} ranks.",
                means="With too few, ranks train without each other; with too many, all wait for ranks that "
                "never come.",
                look=argument_of(look, "init_process_group", "world_size", 3) or line,
            )
        handed = look(r"(?<![\w.])rank ?= ?(\w+\.)?local_?rank\b(?=[,)])")
        raise Diagnosis(
            "wrong-rank",
            saw=f"{got} The launcher says rank {rank}.",
            means="Two processes with the same rank wait for ever for the one that is missing.",
            look=handed if line_of(handed) else argument_of(look, "init_process_group", "rank", 4) or line,
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
    if error and not call["gpus"] and re.search("NVIDIA|CUDA", searchable(error["message"])):
        raise Diagnosis(
            "cuda-without-gpu",
            saw=f"{place}, without a GPU: setup() raised {error_text(error)}",
            means="What is for GPUs only belongs where torch.cuda.is_available() has said that there is one.",
            look=error_place(error, lambda: look(r"cuda")),
        )
    if error and call["gpus"] and "KeyError" in error["bases"] and error["message"].strip("'\"") in TORCHRUN:
        raise Diagnosis(
            "srun-not-served",
            saw=f"{place}: setup() raised {error_text(error)}",
            means="That is a variable of torchrun's. read_launch_environment() knows srun's names too.",
            look=error_place(error, lambda: look(r"environ")),
        )
    if error:
        fail(error, f"{place}: setup()", look)
    if init is None and world_size == 1:
        raise Diagnosis(
            "no-group-of-one",
            saw=f"{place}: setup() has not called init_process_group.",
            means="A single process needs its group too: its collectives would raise without one.",
            look=look.under(r"init_process_group") or look(r"\breturn\b"),
        )
    if init is None:
        raise Diagnosis(
            "no-process-group",
            saw=f"{place}: setup() has not called init_process_group.",
            means="Without a process group no rank can reach another.",
            look=unreached(look, leads_to(look, r"init_process_group\(") or look()),
        )
    if init["timeout"] != timeout:
        saw = f"setup(timeout of {timeout} s) gave init_process_group "
        if init["timeout"] is not None and look(COMPUTED) != look():
            raise Diagnosis(
                "timeout-changed",
                saw=f"{saw}a timeout of {init['timeout']:g} s.",
                means="timeout is a timedelta already: hand it on as it is. Its .seconds leave out the days.",
                look=look(COMPUTED),
            )
        given = "no timeout" if init["timeout"] is None else f"a timeout of {init['timeout']:g} s"
        raise Diagnosis(
            "timeout-ignored",
            saw=f"{saw}{given}.",
            means="A job whose rank has died would wait for PyTorch's default, not for what was asked for.",
            look=argument_of(look, "init_process_group", "timeout", 2)
            if init["timeout"] is not None
            else plain
            if line_of(plain := look(r"init_process_group\((?!.*(timeout|\*)).*\)"))
            else argument_of(look, "init_process_group", "timeout", 2)
            or look.in_branch(r"[\"']timeout[\"']|timeout\s*=")
            or line,
        )
    if call["type"] != "device":
        raise Diagnosis(
            "no-device",
            saw=f"setup() returned {'None' if call['type'] == 'NoneType' else 'a ' + call['type']}, "
            "not a torch.device.",
            means="The rest of the program puts model and images where this says.",
            look=look(r"\breturn\b"),
        )
    return init


def judge_left_behind(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """No further group on some ranks only, and nothing that fails at the end of the program."""
    groups = [report["groups"] for report in reports]
    if len(set(groups)) > 1:
        raise Diagnosis(
            "not-on-every-rank",
            saw=f"after setup() rank 0 has made {groups[0] - 1} further groups, and rank 1 {groups[1] - 1}.",
            means="new_group() is for every rank, whether a member or not: at the next one all would wait.",
            look=look(r"new_group|split_group|init_device_mesh"),
        )
    for rank, report in enumerate(reports):
        if error := report["at_exit"]:
            raise Diagnosis(
                "fails-at-exit",
                saw=f"rank {rank}: what was left to be done at exit, after cleanup(), raised {error_text(error)}",
                means="Every run would end with that error, although all went well: cleanup() leaves the group.",
                look=look(r"register\(", r"atexit"),
            )


def judge_told(look: Look, report: dict[str, Any]) -> None:
    """Where no group can be joined, no GPU be chosen, or no launcher be asked, setup() ends in an error.

    Args:
        report: of the rank that tried on simulated machines.
    """
    expect([report], {"joining_told": bool, "choosing_told": bool, "guessed": bool})
    if not report["joining_told"]:
        raise Diagnosis(
            "error-swallowed",
            saw="init_process_group() of nccl raised DistNetworkError, and setup() came back as if all were well.",
            means="This rank would go on alone, or in another group than the others: let the error come out.",
            look=swallows(look) or look(r"\bexcept\b|suppress", r"init_process_group"),
        )
    if not report["choosing_told"]:
        raise Diagnosis(
            "error-swallowed",
            saw="torch.cuda.set_device() raised an error, and setup() came back as if all were well.",
            means="This rank would go on with the CPU, or with another process's GPU: let the error come out.",
            look=swallows(look) or look(r"\bexcept\b|suppress", r"set_device"),
        )
    if report["guessed"]:
        name, means = ACCEPTED["none"]
        raise Diagnosis(
            name,
            saw="with none of the launcher's variables set setup() came back, although read_launch_environment() "
            "refuses them.",
            means=means,
            look=swallows(look) or look(r"\bexcept\b|\.get\(|getenv|setdefault", r"init_process_group"),
        )
