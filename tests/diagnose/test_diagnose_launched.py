"""What several lines of a log say together: torchrun in each task, a container without GPUs, ranks on one GPU."""

import re
from pathlib import Path

import pytest

from lab.cli import main
from lab.diagnose.evidence import Evidence
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

CASES = {
    case.partition(" | ")[0]: case.partition("\n")[2]
    for case in re.split(
        r"^=== ", (Path(__file__).parent / "corpus" / "twelfth_try.txt").read_text(encoding="utf-8"), flags=re.M
    )[1:]
}


def first(log: str) -> Finding:
    return findings(Evidence(name="train.err", log=log, files=("train.err",)))[0]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("files-of-shared-tensors", ["set_sharing_strategy('file_system')", "ulimit -n"]),
        ("torchrun-in-each-task", ["4 torchruns were started on one node", "--ntasks-per-node=1"]),
        ("torchruns-by-srun-report", ["3 torchruns were started on one node"]),
        ("one-torchrun-port-taken", ["torchrun --master-port", "grep train.py"]),
        ("apptainer-without-nv", ["apptainer brings the node's driver in only with --nv", "apptainer exec --nv"]),
        ("docker-without-gpus", ["docker run --rm --gpus all"]),
        ("stale-cache-of-ranks", ["Several ranks found the same file gone", "The disk is in order", "HF_HOME="]),
        ("ranks-on-gpu-0", ["3 other ranks of this job hold 5.0 GiB", "map_location", "set_device"]),
        (
            "saved-by-rank-0-only",
            ["Only rank 0 came to ALLREDUCE", "train.py, line 139: if trainer.is_global_zero"],
        ),
        ("all-four-in-one-allreduce", ["All 4 ranks waited in ALLREDUCE", "None of them was missing"]),
        ("three-of-four-in-one-allreduce", ["Another rank did not come to it"]),
        ("status-12-then-5", ["Error 12 is an answer that did not come", "--exclude=node03"]),
    ],
)
def test_what_is_said(case, said):
    found = first(CASES[case])
    text = "\n".join((found.saw, found.means, *found.do))
    assert [words for words in said if words not in text] == []


def test_a_warning_of_a_run_that_trained_is_no_finding_of_one_that_did_not_is():
    log = CASES["complete-with-warnings"]
    assert findings(Evidence(name="train.err", log=log)) == []
    hung = "".join(line for line in log.splitlines(keepends=True) if not line.startswith(("[METRIC]", "best")))
    assert "could not be looked up" in first(hung).saw


def test_a_run_that_trained_for_all_its_epochs_is_said_to_be_well(tmp_path, capsys):
    log = CASES["complete-with-warnings"]
    (tmp_path / "train.log").write_text(log, encoding="utf-8")
    assert main(["diagnose", str(tmp_path / "train.log")]) == 0
    assert "It trained for all its epochs, and its log shows no error." in capsys.readouterr().out
    (tmp_path / "train.log").write_text(log.replace("epoch=20 ", "epoch=19 "), encoding="utf-8")
    assert main(["diagnose", str(tmp_path / "train.log")]) == 1


def test_a_program_that_knows_only_the_labs_prefix_gets_it_in_its_command():
    log = (
        "RuntimeError: Error(s) in loading state_dict for ResNet:\n"
        '\tMissing key(s) in state_dict: "conv1.weight". \n'
        '\tUnexpected key(s) in state_dict: "module.conv1.weight".\n'
    )
    assert any("(state, 'module.')" in command for command in first(log).do)


def test_half_the_batch_is_that_of_the_log():
    full = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.7 GiB"
    )
    log = f"  batch      8192 in all, 4096 on each rank; 12 steps an epoch\n{full} of which 1.00 GiB is free.\n"
    assert any("--per-device-batch-size 2048 " in command for command in first(log).do)


def test_a_rank_is_on_the_node_that_torchrun_names():
    log = (
        "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "  host      : node07\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 4253)\n"
    )
    assert any("--exclude=node07 " in command for command in first(log).do)


@pytest.mark.parametrize(
    "more",
    [
        "srun: error: n1: tasks -3,,2-: Exited with exit code 1\n",
        "job 7: 99999999999999999999 ranks on n1; they meet at n1:1\n",
        "[rank0]: CUDA out of memory. Tried to allocate 1.2.3 GiB. Process 1 has ... GiB memory in use.\n",
    ],
)
def test_a_garbled_log_raises_nothing(more):
    for log in CASES.values():
        assert isinstance(findings(Evidence(name="train.err", log=more + log)), list)
