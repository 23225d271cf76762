"""Every command that a finding can print is understood by the program that it calls."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest

from lab.cli import build_parser, main
from lab.diagnose import filled as filled_in
from lab.diagnose import verdict
from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.slurm_job import changed
from lab.diagnose.symptoms.table import SYMPTOMS
from lab.diagnose.told.finding import Finding
from lab.diagnose.told.states import STATES
from lab.runs.options import parse
from lab.slurm.query import SlurmJob

SLURM = {  # options of Slurm's programs that are told to anybody: man sbatch, srun, sacct, ...
    "sbatch": "--partition --account --time --nodes --ntasks-per-node --gpus-per-node --mem --exclude",
    "srun": "--nodes --nodelist --ntasks --ntasks-per-node --gpus --overlap --help --mpi --container-image",
    "sacct": "-j --format",
    "sinfo": "--format --list-reasons",
    "squeue": "--me --start",
    "scancel": "",
    "scontrol": "",
}
RERUNS = (
    "sbatch --nodes=2 run.sh --strategy fsdp --global-batch-size 512 --accumulate 4",
    "CODE=solutions LAB_ENV='/my env' sbatch run.sh --measure-steps 50 --per-device-batch-size=16 --no-amp",
    "./run.sh --strategy ddp --no-checkpoints --data-dir 'my data'",
)


def said() -> list[str]:
    return [
        *in_tables(),
        *(do for one in STATES.values() for do in one.do),
        *in_code(),
    ]


def in_tables() -> Iterator[str]:
    """Those of all symptoms and of their cases, with what a pattern can put into them put there."""
    for symptom in SYMPTOMS:
        cases = [(one.pattern, one.do) for one in symptom.cases]
        for pattern, commands in ((symptom.pattern, symptom.do), *cases):
            groups = {*pattern.groupindex, *symptom.pattern.groupindex}
            for command in commands:
                yield re.sub(r"\{(\w+)\}", lambda one, of=groups: "word" if one[1] in of else one[0], command)


def in_code() -> Iterator[str]:
    """The commands that the code hands to a Finding: its fourth argument, as literals or by a constant's name."""
    room = Path(verdict.__file__).parent
    for file in sorted((*room.glob("*.py"), *room.glob("told/*.py"))):
        module = import_module(f"lab.diagnose.{'.'.join(file.relative_to(room).with_suffix('').parts)}")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding" and len(call.args) > 3:
                do = call.args[3]
                parts = [do.body, do.orelse] if isinstance(do, ast.IfExp) else [do]
                for one in (element for part in parts for element in getattr(part, "elts", [part])):
                    if isinstance(one, ast.Constant):
                        yield str(one.value)
                    elif isinstance(one, ast.Name) and hasattr(module, one.id):
                        value = getattr(module, one.id)
                        yield from [value] if isinstance(value, str) else value


def test_the_commands_in_the_code_are_found():
    found = set(in_code())
    assert len(found) >= 20
    assert "squeue --me --start   # when Slurm expects that" in found
    assert any(command.startswith("PYTHONFAULTHANDLER=1") for command in found)


def filled(command: str, rerun: str) -> str:
    log = ("results/a-run/train.log", "results/a-run/train.err")
    evidence = Evidence(name="results/a-run", log="", jobid="7", run_id="a-run", command=rerun, files=log)
    return filled_in._fill(command, filled_in._values(evidence))


@pytest.mark.parametrize("rerun", RERUNS)
@pytest.mark.parametrize("command", dict.fromkeys(said()))
def test_a_command_is_understood(command, rerun):
    text = filled(command, rerun).partition("   #")[0].partition("    #")[0]
    assert not re.search(r"\{\w+\}", text)
    assert subprocess.run(["bash", "-n", "-c", text], check=False).returncode == 0, text
    for part in re.split(r" ; | \| ", text):
        words = [word for word in shlex.split(part) if not re.fullmatch(r"[A-Z_]+=\S*.*", word)]
        program = words[0] if words else ""
        if program == "env":
            program, words = words[3], words[3:]
        if program in SLURM:
            known = SLURM[program].split()
            options = takewhile(
                lambda word: word.startswith("-"), words[1:]
            )  # then comes what it starts, or a job
            assert {word.partition("=")[0] for word in options} <= set(known), part
        if program == "lab":
            build_parser().parse_args(words[1:])
        script = next((i for i, word in enumerate(words) if word.endswith("run.sh")), None)
        if script is not None and program in ("sbatch", "./run.sh"):
            parse([word for word in words[script + 1 :] if word != "..."])


# What reads the report itself must name a file of it: a folder is none to grep or tail ----------------------


def a_log(folder: Path) -> Path:
    (folder / "a log.err").write_text("line 1\n", encoding="utf-8")
    return folder / "a log.err"


def two_halves(folder: Path) -> Path:
    (folder / "train-7.log").write_text("line 1\n", encoding="utf-8")
    (folder / "train-7.err").write_text("line 2\n", encoding="utf-8")
    return folder / "train-7.err"


def a_folder(folder: Path) -> Path:
    (folder / "train.log").write_text("line 1\n", encoding="utf-8")
    (folder / "train.err").touch()
    return folder


def a_run(folder: Path) -> Path:
    (folder / "status.json").write_text('{"status": "failed"}', encoding="utf-8")
    (folder / "nccl-n1-2.log").write_text("line 2\n", encoding="utf-8")
    return a_folder(folder)


def logs_of_torchrun(folder: Path) -> Path:
    for rank in "012345":
        (folder / "run_1" / "attempt_0" / rank).mkdir(parents=True)
        (folder / "run_1" / "attempt_0" / rank / "stderr.log").write_text("line 1\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("report", [a_log, two_halves, a_folder, a_run, logs_of_torchrun])
def test_a_command_that_reads_the_report_names_files_of_it(report, tmp_path):
    evidence = gather(report(tmp_path))
    reading = [command for command in said() if re.search(r"\b(?:grep|tail|head|cat)\b.*\{log\}", command)]
    assert len(reading) >= 5
    finding = Finding("x", "", "", tuple(reading))
    for command in filled_in.filled(finding, evidence).do:
        text = command.partition("    #")[0].replace("tail -f", "tail")
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, timeout=10)
        assert (done.returncode in (0, 1), done.stderr) == (True, ""), command


def test_where_there_is_no_log_no_command_reads_one():
    finding = Finding("x", "", "", ("tail -n 3 {log}", "squeue --me"))
    assert filled_in.filled(finding, Evidence(name="job 7", log="", jobid="7")).do == ("squeue --me",)


def test_of_a_run_that_goes_on_its_own_log_is_named(tmp_path, capsys, monkeypatch):
    folder = a_folder(tmp_path)
    (folder / "status.json").write_text('{"status": "running"}', encoding="utf-8")
    assert main(["diagnose", str(folder)]) == 0
    assert f"tail -f {folder / 'train.log'} " in capsys.readouterr().out


def test_an_option_replaces_those_that_it_does_not_go_with():
    rerun = "CODE=solutions sbatch run.sh --global-batch-size 512 --accumulate 4 --data-dir 'my data' --epochs 3"
    assert changed(rerun, "--per-device-batch-size 32 --accumulate 2") == (
        "CODE=solutions sbatch run.sh --data-dir 'my data' --epochs 3"
    )


# What is found without a log's own words ------------------------------------------------------------------------


def test_a_run_in_a_smaller_world_than_its_job_is_no_success():
    log = "job 7: 8 ranks on node1 node2; they meet at node1:10007\n"
    found = verdict.findings(Evidence(name="x", log=log, status="done", jobid="7", config={"world_size": 1}))
    assert found[0].name == "worlds-of-one"
    assert not verdict.findings(Evidence(name="x", log=log, status="done", jobid="7", config={"world_size": 8}))


def test_a_log_that_slurm_could_not_open_is_named():
    first, *_ = verdict.findings(Evidence(name="x", log="", jobid="7", now=SlurmJob("FAILED", exit_code="0:53")))
    assert first.name == "log-not-writable"


def test_of_a_dependency_other_things_are_said_than_of_a_size():
    first, *_ = verdict.findings(
        Evidence(name="x", log="", jobid="7", now=SlurmJob("PENDING", "DependencyNeverSatisfied"))
    )
    assert "scontrol update JobId=7 Dependency=" in first.do


def test_what_the_run_has_written_down_counts_more_than_what_follows_from_it(tmp_path):
    lost = "torch.distributed.elastic.rendezvous.api.RendezvousClosedError\n"
    (tmp_path / "train.err").write_text(lost)
    assert verdict.findings(gather(tmp_path))[0].name == "rank-lost"
    (tmp_path / "status.json").write_text('{"status": "failed", "reason": "KeyError: rate, at train.py, line 4"}')
    assert verdict.findings(gather(tmp_path))[0].name == "failed"
    (tmp_path / "rank1.err").write_text("srun: error: node2: task 1: Killed\n")
    assert verdict.findings(gather(tmp_path))[0].name == "killed"
