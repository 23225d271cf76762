"""The checks of exercises 2.2 and 2.3 accept different right answers and name what is wrong with the others."""

from pathlib import Path
from textwrap import dedent

import pytest
from answers.bank import SOLUTIONS, verdict, with_answer

# 2.2 --------------------------------------------------------------------------------------------------------

SETUP = """
launch = read_launch_environment(os.environ)
if torch.cuda.is_available():
    device = torch.device("cuda", launch.local_rank if torch.cuda.device_count() > 1 else 0)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device = torch.device("cpu")
    backend = "gloo"
dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, timeout=timeout)
return device
"""

JOIN = "dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, timeout=timeout)"
CHOOSE = 'torch.device("cuda", launch.local_rank if torch.cuda.device_count() > 1 else 0)'

SETUP_RIGHT = {
    "plain": SETUP,
    "modulo": SETUP.replace(
        "launch.local_rank if torch.cuda.device_count() > 1 else 0",
        "launch.local_rank % torch.cuda.device_count()",
    ),
    "device_id on CUDA": SETUP.replace(
        "timeout=timeout)", "timeout=timeout, device_id=device if device.type == 'cuda' else None)"
    ),
    "env:// for torchrun, explicit variables for srun": SETUP.replace(
        JOIN,
        "os.environ.update(RANK=str(launch.rank), WORLD_SIZE=str(launch.world_size))\n"
        "dist.init_process_group(backend, init_method='env://', timeout=timeout)",
    ),
    "both backends": SETUP.replace('"nccl"', '"cpu:gloo,cuda:nccl"'),
    "torch chooses the backend": SETUP.replace("process_group(backend, rank", "process_group(rank"),
    "current device without index": SETUP.replace("return device", "return torch.device(device.type)"),
    "by name": "from torch.cuda import is_available, set_device, device_count\n"
    "from torch.distributed import init_process_group as join\n"
    + SETUP.replace("torch.cuda.", "").replace("dist.init_process_group", "join"),
    "accelerator": SETUP.replace("torch.cuda.is_available", "torch.accelerator.is_available").replace(
        "torch.cuda.set_device(device)", "torch.accelerator.set_device_index(device.index)"
    ),
    "talks afterwards": SETUP.replace(
        "return device",
        "dist.barrier()\nprint(dist.get_rank(), 'of', dist.get_world_size(), device)\nreturn device",
    ),
}

SETUP_WRONG = {
    "nccl": ("nccl-hard-coded", SETUP.replace('"gloo"', '"nccl"')),
    "gloo": ("gloo-hard-coded", SETUP.replace('"nccl"', '"gloo"')),
    "rank as device index": ("rank-as-device-index", SETUP.replace("launch.local_rank if", "launch.rank if")),
    "only the current device by rank": (
        "rank-as-device-index",
        SETUP.replace("set_device(device)", "set_device(launch.rank)"),
    ),
    "local rank where one GPU is visible": (
        "wrong-device-index",
        SETUP.replace(CHOOSE, 'torch.device("cuda", launch.local_rank)'),
    ),
    "always GPU 0": ("wrong-device-index", SETUP.replace(CHOOSE, 'torch.device("cuda", 0)')),
    "cuda without set_device": (
        "no-set-device",
        SETUP.replace(CHOOSE, 'torch.device("cuda")').replace("    torch.cuda.set_device(device)\n", ""),
    ),
    "world size hard-coded": ("world-size-hard-coded", SETUP.replace("launch.world_size", "2")),
    "world size hard-coded, too large here": ("world-size-hard-coded", SETUP.replace("launch.world_size", "4")),
    "world of one": (
        "world-size-hard-coded",
        SETUP.replace("launch.world_size", "1").replace("launch.rank,", "0,"),
    ),
    "local rank as rank": ("wrong-rank", SETUP.replace("rank=launch.rank", "rank=launch.local_rank")),
    "no set_device": ("no-set-device", SETUP.replace("    torch.cuda.set_device(device)\n", "")),
    "set_device last": (
        "set-device-after-group",
        SETUP.replace("    torch.cuda.set_device(device)\n", "").replace(
            "return device", "if device.type == 'cuda':\n    torch.cuda.set_device(device)\nreturn device"
        ),
    ),
    "no return": ("no-device", SETUP.replace("return device", "")),
    "returns the index": ("no-device", SETUP.replace("return device", "return device.index")),
    "returns text": ("no-device", SETUP.replace("return device", "return str(device)")),
    "timeout ignored": ("timeout-ignored", SETUP.replace(", timeout=timeout", "")),
    "own timeout": ("timeout-ignored", SETUP.replace("timeout=timeout", "timeout=timedelta(seconds=30)")),
    "env:// only": ("srun-not-served", SETUP.replace(JOIN, "dist.init_process_group(backend, timeout=timeout)")),
    "no group": ("no-process-group", SETUP.replace(JOIN, "")),
    "device_id on the CPU": (
        "device-id-on-cpu",
        SETUP.replace("timeout=timeout", "timeout=timeout, device_id=device"),
    ),
    "cpu returned": ("gpu-not-used", SETUP.replace("return device", "return torch.device('cpu')")),
    "cuda returned": ("no-gpu-there", SETUP.replace("return device", "return torch.device('cuda')")),
    "bug": ("raised", SETUP.replace("launch.rank,", "launch.ranks,")),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", SETUP_RIGHT.values(), ids=SETUP_RIGHT)
def test_right_answers_to_2_2_pass(tmp_path: Path, code: str):
    assert verdict("2.2", with_answer(tmp_path, "2.2", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), SETUP_WRONG.values(), ids=SETUP_WRONG)
def test_wrong_answers_to_2_2(tmp_path: Path, name: str, code: str):
    assert verdict("2.2", with_answer(tmp_path, "2.2", code)) == name


# 2.3 --------------------------------------------------------------------------------------------------------

CLEANUP = "if dist.is_initialized():\n    dist.destroy_process_group()"
MAIN = "return dist.get_rank() == 0"

LEAVE_RIGHT = {
    "try": ("try:\n    dist.destroy_process_group()\nexcept (ValueError, AssertionError):\n    pass", MAIN),
    "barrier first": (
        "if not dist.is_initialized():\n    return\ndist.barrier()\ndist.destroy_process_group()",
        MAIN,
    ),
    "not rank": (CLEANUP, "return not dist.get_rank()"),
    "environment": (CLEANUP, "return read_launch_environment(os.environ).rank == 0"),
}

LEAVE_WRONG = {
    "nothing": ("group-not-destroyed", "pass", MAIN),
    "main process only": ("group-not-destroyed", "if is_main_process():\n    dist.destroy_process_group()", MAIN),
    "no question": ("cleanup-without-group", "dist.destroy_process_group()", MAIN),
    "local rank": ("several-main-processes", CLEANUP, "return int(os.environ.get('LOCAL_RANK', 0)) == 0"),
    "always": ("several-main-processes", CLEANUP, "return True"),
    "rank 1": ("wrong-main-process", CLEANUP, "return dist.get_rank() == 1"),
    "the rank itself": ("not-a-bool", CLEANUP, "return dist.get_rank()"),
    "no return": ("not-a-bool", CLEANUP, "dist.get_rank() == 0"),
    "RANK": ("rank-from-torchrun-only", CLEANUP, "return os.environ['RANK'] == '0'"),
    "RANK as a number": ("wrong-main-process", CLEANUP, "return os.environ.get('RANK') == 0"),
    "bug": ("raised", "dist.destroy()", MAIN),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("leave", "main"), LEAVE_RIGHT.values(), ids=LEAVE_RIGHT)
def test_right_answers_to_2_3_pass(tmp_path: Path, leave: str, main: str):
    with_answer(tmp_path, "2.3a", leave)
    assert verdict("2.3", with_answer(tmp_path, "2.3b", main)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "leave", "main"), LEAVE_WRONG.values(), ids=LEAVE_WRONG)
def test_wrong_answers_to_2_3(tmp_path: Path, name: str, leave: str, main: str):
    with_answer(tmp_path, "2.3a", leave)
    assert verdict("2.3", with_answer(tmp_path, "2.3b", main)) == name


# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", ["2.2", "2.3"])
def test_the_solutions_pass(exercise: str):
    assert verdict(exercise, SOLUTIONS) == "passed"


def test_half_of_an_exercise_is_not_started(tmp_path: Path):
    stub = dedent("""
        raise NotImplementedError("Exercise 2.3a is not done yet: cleanup() in distributed_utils.py")
    """)
    assert verdict("2.3", with_answer(tmp_path, "2.3a", stub)) == "not started"
