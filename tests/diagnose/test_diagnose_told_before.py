"""What earlier lines tell of a cause: versions, a full disk, where the ranks meet, the traceback that goes on."""

import re
from pathlib import Path

import pytest

from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.told.chains import chained
from lab.diagnose.verdict import findings

CASES = {
    case.partition(" | ")[0]: case.partition("\n")[2]
    for case in re.split(
        r"^=== ", (Path(__file__).parent / "corpus" / "sixteenth_try.txt").read_text(encoding="utf-8"), flags=re.M
    )[1:]
}
ENDS = {
    "direct": "The above exception was the direct cause of the following exception:",
    "during": "During handling of the above exception, another exception occurred:",
}
UNREACHABLE = "OSError: [Errno 101] Network is unreachable"
NO_NAME = "socket.gaierror: [Errno -3] Temporary failure in name resolution"
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/.cache/x.json'"
NO_ROOM = "OSError: [Errno 28] No space left on device: '/scratch/me/a.pt'"
CUT_OFF = "EOFError: Ran out of input"


def names(log: str) -> list[str]:
    return [found.name for found in findings(Evidence(name="train.log", log=log, files=("train.log",)))]


def block(said: str, line: int = 9) -> list[str]:
    return [
        "Traceback (most recent call last):",
        f'  File "/home/me/data.py", line {line}, in f',
        "    go(x)",
        said,
    ]


def chain(*said: str, how: str = "during", before: str = "") -> str:
    lines: list[str] = []
    for number, one in enumerate(said):
        lines += ["", ENDS[how], ""] if number else []
        lines += block(one, number)
    return "".join(f"{before}{line}\n" for line in lines)


# What the text says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("two-installs-39", ["NCCL: 2.27.5 on tur-c03, 2.29.3 on tur-c07", "PyTorch: 2.10.0 on tur-c03, 2.12.1"]),
        ("printed-by-srun-39b", ["PyTorch: 2.6.0 on n114, 2.4.1 on n115"]),
        ("cuda-of-two-builds-39c", ["CUDA: 11.8 on kn21, 12.4 on kn22"]),
        ("pip-freeze-by-rank-39d", ["NCCL: 2.21.5 on rank 0, 2.26.2 on rank 2"]),
        ("truncated-while-wrapping-39e", ["while they met", "No collective of the program had begun"]),
        ("full-then-resumed-31", ["the disk was full", "will retry next epoch", "--resume best", "os.replace"]),
        ("quota-then-resumed-31b", ["your quota was used up", "checkpoint skipped"]),
        ("preempted-while-saving-31d", ["ended (preemption) while it wrote one", "latest.pt ..."]),
        ("killed-while-saving-31e", ["ended while it wrote one", "model_9000.safetensors"]),
        ("login-node-35", ["MASTER_ADDR is tur-login.ki", "tur-a01, tur-a02", "login node"]),
        ("endpoint-of-another-machine-35b", ["--rdzv_endpoint is data-srv", "wn31, wn32", "not even rank 0"]),
        ("localhost-of-two-nodes-35c", ["MASTER_ADDR is localhost", "m07, m08", "their own door"]),
        ("of-the-job-before-35d", ["init_method is cn0187", "cn0211, cn0212", "kept from an earlier start"]),
        ("login-node-until-the-limit-35e", ["MASTER_ADDR is hpclogin2", "k3, k4"]),
    ],
)
def test_a_log_is_answered_by_what_its_earlier_lines_tell(case, said, tmp_path):
    log = tmp_path / "train.err"
    log.write_text(CASES[case], encoding="utf-8")
    found = findings(gather(log))[0]
    text = " ".join((found.saw, found.means, *found.do))
    assert [words for words in said if words not in text] == []


@pytest.mark.parametrize("case", ["full-then-resumed-31", "quota-then-resumed-31b", "full-in-one-run-31c"])
def test_both_are_said_the_disk_and_the_checkpoint_that_it_cut_off(case, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(CASES[case], encoding="utf-8")
    for path in (folder, folder / "train.log"):
        assert [one.name for one in findings(gather(path))] == ["disk-full", "broken-checkpoint"]


def test_a_full_disk_that_is_not_that_of_the_checkpoint_is_not_to_blame():
    read = "resuming from /data/me/last.pt\n" + chain(
        "RuntimeError: PytorchStreamReader failed reading zip archive"
    )
    full = "warning: [Errno 28] No space left on device: '{}'\nepoch 3 loss: 0.4\n"
    assert names(full.format("/data/me/last.pt") + read)[0] == "disk-full"
    assert names(full.format("/home/me/wandb/x.log") + read)[0] == "broken-checkpoint"
    assert (
        names("NCCL WARN /dev/shm/nccl-1: No space left on device\nepoch 3 loss: 0.4\n" + read)[0] != "disk-full"
    )


def test_a_save_that_came_to_its_end_was_not_cut_off():
    read = "loading out/a.pt\n" + chain("RuntimeError: PytorchStreamReader failed reading zip archive")
    killed = "srun: error: n1: task 0: Killed\n"
    for between, midst in (("", True), ("saved checkpoint out/a.pt\n", False), ("epoch 2 loss: 1.0\n" * 4, False)):
        log = f"saving checkpoint out/a.pt\n{between}{killed}{read}"
        found = findings(Evidence(name="x", log=log, files=("x",)))
        assert any("while it wrote one" in one.saw for one in found) == midst


# Exceptions of one traceback -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("before", ["", "[rank1]: ", "3: ", "n7: "])
@pytest.mark.parametrize(
    ("said", "name"),
    [
        (
            (UNREACHABLE, "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>"),
            "no-internet",
        ),
        (
            (NO_NAME, "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded"),
            "no-internet",
        ),
        ((UNREACHABLE, NO_FILE, "OSError: We couldn't connect to 'https://huggingface.co'"), "no-internet"),
        ((NO_FILE, NO_ROOM), "disk-full"),
        ((CUT_OFF, NO_FILE), "broken-checkpoint"),
        ((NO_FILE, "PermissionError: [Errno 13] Permission denied: '/home/me/.cache'"), "file-not-found"),
        ((UNREACHABLE, "torch.distributed.DistNetworkError: The client socket has timed out"), "host-unreachable"),
        (("OSError: [Errno 5] Input/output error: '/d/a'", CUT_OFF), "file-system"),
    ],
)
def test_the_exceptions_of_one_traceback_are_one_cause(said, name, before, how):
    assert names(chain(*said, how=how, before=before)) == [name]


def test_two_tracebacks_are_two():
    apart = chain(CUT_OFF) + chain(NO_FILE)
    assert names(apart) == ["broken-checkpoint", "file-not-found"]
    assert chained(apart) == []
    assert names(chain(CUT_OFF, NO_FILE) + "another.py: " + NO_FILE + "\n") == [
        "broken-checkpoint",
        "file-not-found",
    ]


def test_a_chain_holds_what_is_between_its_exceptions_and_no_other_rank():
    one, other = (
        chain(NO_FILE, CUT_OFF, before="[rank0]: ").splitlines(),
        chain(NO_ROOM, before="[rank1]: ").splitlines(),
    )
    mixed = [line for pair in zip(one, other * 3, strict=False) for line in pair]
    (lines,) = chained("\n".join(mixed))
    assert f"[rank0]: {CUT_OFF}" in lines
    assert f"[rank0]: {NO_FILE}" in lines
    assert not any("rank1" in line for line in lines)
