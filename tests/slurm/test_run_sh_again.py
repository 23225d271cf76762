"""run.sh where there is something already: a job that Slurm starts again, a run that is resumed, or done."""

import os
import re
import shutil
from pathlib import Path

import pytest
from played_slurm import SLURM, notes, play, played, start


@pytest.fixture
def package(root, tmp_path) -> Path:
    return played(root, tmp_path)


@pytest.mark.parametrize(
    ("saved", "name"),
    [
        *(("never", "latest.pth"), ("by an older run", "latest.pth"), ("by this job", "latest.pth")),
        *(("by an older run", "latest.json"), ("by this job", "latest.json")),
    ],
)
def test_a_job_that_is_started_again_goes_on_from_what_it_has_saved(package, saved, name):
    latest = package / "results/mine/checkpoints" / name
    if saved == "by an older run":
        latest.parent.mkdir(parents=True)
        latest.touch()
        os.utime(latest, (1, 1))
    start(package, "--run-id", "mine", **SLURM)
    if saved == "by this job":
        latest.parent.mkdir()
        latest.touch()
    for restart in ("1", "2"):
        start(package, "--run-id", "mine", SLURM_RESTART_COUNT=restart, **SLURM)
        assert notes(package)[1].endswith(" --resume auto") == (saved == "by this job")


@pytest.mark.parametrize("link", [False, True])  # run.sh takes it away when it ends by itself, as after SIGTERM
def test_a_job_that_slurm_starts_again_goes_on_in_its_log(package, link):
    folder = package / "results" / "mine"
    play(package / "bin", "srun", 'echo "out ${SLURM_RESTART_COUNT:-0}"; echo "err ${SLURM_RESTART_COUNT:-0}" >&2')

    def run(where: Path, name: str, **restart: str) -> None:
        with (where / f"{name}.log").open("a") as log, (where / f"{name}.err").open("a") as errors:
            start(package, "--run-id", "mine", stdout=log, stderr=errors, **SLURM, **restart)

    run(package, "train-123456")
    run(*((folder, "train") if link else (package, "train-123456")), SLURM_RESTART_COUNT="1")
    log, errors = ((folder / name).read_text() for name in ("train.log", "train.err"))
    assert re.findall("^(?:job|out).{2}", log, re.M) == ["job 1", "out 0", "job 1", "out 1"]
    assert errors == "err 0\nrun.sh: here begins job 123456\nerr 1\n"


INTERRUPTED = '{"status": "interrupted", "reason": "stopped by SIGUSR1: saved at epoch 3, step 1"}'


@pytest.mark.parametrize(
    ("before", "after", "code", "again"),
    [
        ("", INTERRUPTED, 85, True),
        ("", INTERRUPTED.replace("saved at", "no checkpoint at"), 85, False),  # it would never come further
        (INTERRUPTED, INTERRUPTED, 1, False),  # of the start before: this one died early
        ("", '{"status": "failed", "reason": "bug"}', 1, False),
    ],
)
def test_only_a_job_that_has_saved_after_the_warning_queues_again(package, before, after, code, again):
    status = package / "results" / "scaling-lab-123456" / "status.json"
    status.parent.mkdir(parents=True)
    if before:
        status.write_text(before)
    play(package / "bin", "srun", f"echo '{after}' >{status}; exit 1")
    requeue = 'if [[ $1 == requeue ]]; then echo "$*" >"$NOTES"; else printf "node7\\nnode8\\n"; fi'
    play(package / "bin", "scontrol", requeue)
    done = start(package, **SLURM)
    assert done.returncode == code
    assert (package / "notes").exists() == again
    if again:
        assert notes(package) == ["requeue 123456"]


@pytest.mark.parametrize(
    ("record", "environment", "reason"),
    [
        ("Requeue=0", {}, "SIGUSR1"),  # sbatch --no-requeue
        ("Requeue=1", {"SLURM_RESTART_COUNT": "20"}, "SIGUSR1"),
        ("Requeue=1", {}, "SIGTERM"),  # of a rank: nobody's warning
    ],
)
def test_a_job_that_does_not_queue_again_does_not_say_so(package, root, record, environment, reason):
    shutil.copytree(root / "slurm", package / "slurm")
    status = package / "results" / "scaling-lab-123456" / "status.json"
    play(package / "bin", "srun", f"echo '{INTERRUPTED.replace('SIGUSR1', reason)}' >{status}; exit 1")
    shown = f'elif [[ $1 == requeue ]]; then echo "$*" >"$NOTES"; else echo "   {record} Restarts=0"; fi'
    play(package / "bin", "scontrol", f'if [[ $2 == hostnames ]]; then printf "node7\\nnode8\\n"; {shown}')
    play(package / "bin", "sacct", "")
    done = start(package, **environment, **SLURM)
    assert done.returncode == 85
    assert "it queues again" not in done.stdout
    assert not (package / "notes").exists()


# One task of an array has the array's number as its own: that number alone means all of them.
TASK = {"SLURM_ARRAY_JOB_ID": "123456", "SLURM_ARRAY_TASK_ID": "3"}


def test_a_task_of_an_array_queues_and_records_itself_only(package, root):
    shutil.copytree(root / "slurm", package / "slurm")
    status = package / "results" / "scaling-lab-123456_3" / "status.json"
    play(package / "bin", "srun", f"echo '{INTERRUPTED}' >{status}; exit 1")
    say = 'echo "${0##*/} $*" >>"$NOTES"'
    play(package / "bin", "scontrol", f'if [[ $2 == hostnames ]]; then printf "node7\\nnode8\\n"; else {say}; fi')
    play(package / "bin", "sacct", say)
    assert start(package, LAUNCHER="srun", **SLURM | TASK).returncode == 85
    said = [" ".join(line.split()[:3]) for line in notes(package)]
    assert said == ["scontrol show job", "sacct --jobs=123456_3 --duplicates", "scontrol requeue 123456_3"]
    assert notes(package)[0] == "scontrol show job 123456_3"
    shown = status.parent / "slurm-123456_3" / "scontrol.txt"
    assert shown.read_text() == "   CODE=exercises\n   LAUNCHER=srun\n"  # what stood before sbatch


def test_the_records_wait_for_every_step_and_sample_every_gpu(package, root):
    shutil.copytree(root / "slurm", package / "slurm")
    play(package / "bin", "nvidia-smi", "")
    play(package / "bin", "sleep", "")
    # The sampler's step is .0, the ranks' is .1; accounting hears of its end when it is asked for the third time.
    # The run goes on until the sampler has begun: at its end the sampler is stopped.
    play(
        package / "bin",
        "srun",
        'if [[ $* == *main.py* ]]; then timeout 60 bash -c "until [[ -s sampled ]]; do /bin/sleep 0.05; done"; '
        'else echo "${SLURM_GPUS_PER_TASK:-all}${SLURM_TRES_PER_TASK:-}" >sampled; fi',
    )
    state = "$( (($(wc -l <asked) < 3)) && echo RUNNING || echo COMPLETED)"
    play(package / "bin", "sacct", f'echo >>asked; printf "%s\\n" "6.0|gpus|CANCELLED|" "6.1|python|{state}|"')
    start(package, SLURM_GPUS_PER_TASK="1", SLURM_TRES_PER_TASK="gres/gpu:1", **SLURM)
    records = package / "results" / "scaling-lab-123456" / "slurm-123456"
    assert "6.1|python|COMPLETED|" in (records / "sacct.txt").read_text()
    assert (package / "sampled").read_text() == "all\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), "job\n"), (("--resume", "auto"), "earlier\njob\n"), (("--resume=best",), "earlier\njob\n")],
)
def test_slurms_log_becomes_the_runs_and_a_resumed_run_keeps_its_own(package, flags, expected):
    folder = package / "results" / "mine"
    folder.mkdir(parents=True)
    (folder / "train.log").write_text("earlier\n")
    play(package / "bin", "srun", 'echo "JOB_STDOUT=$JOB_STDOUT" >"$NOTES"')
    opened = package / "train-123456.log"
    with opened.open("w") as stream:
        start(package, "--run-id", "mine", *flags, stdout=stream, **SLURM)
    assert re.sub(r"^job .*", "job", (folder / "train.log").read_text(), flags=re.M) == expected
    assert notes(package) == [f"JOB_STDOUT={folder}/train.log"]
    assert not opened.is_symlink()
    assert not opened.exists()


@pytest.mark.parametrize(("status", "kept"), [("done", True), ("failed", False)])
def test_a_job_for_a_run_that_is_done_leaves_its_log_as_it_was(package, status, kept):
    folder = package / "results" / "mine"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(f'{{\n  "status": "{status}"\n}}\n')
    for name in ("train.log", "train.err"):
        (folder / name).write_text("earlier\n")
    play(package / "bin", "srun", "echo refused >&2")
    with (package / "train-123456.log").open("w") as log, (package / "train-123456.err").open("w") as errors:
        start(package, "--run-id", "mine", stdout=log, stderr=errors, **SLURM)
    said = (folder / "train.err").read_text()
    assert said == ("earlier\nrun.sh: here begins job 123456\nrefused\n" if kept else "refused\n")
    assert (folder / "train.log").read_text().startswith("earlier\n") == kept


@pytest.mark.parametrize(
    ("flags", "status", "kept"),
    [(("--resume", "latest"), "failed", True), ((), "done", True), ((), "failed", False)],
)
def test_outside_slurm_a_run_that_is_resumed_or_done_keeps_its_log(package, flags, status, kept):
    folder = package / "results" / "mine"
    start(package, "--run-id", "mine")
    (folder / "status.json").write_text(f'{{\n  "status": "{status}"\n}}\n')
    start(package, "--run-id", "mine", *flags)
    assert (folder / "train.log").read_text() == "out\n" * (1 + kept)
    assert (folder / "train.err").read_text() == "err\n" * (1 + kept)
