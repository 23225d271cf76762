"""The scripts in slurm/: run.sh's own head, and flags that main.py takes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.runs import options

SCRIPTS = ("baseline", "strong_scaling", "weak_scaling", "sensitivity", "profile_nsys", "profile_ncu")
THEIR_OWN = {"job-name", "ntasks-per-node", "gpus-per-node", "array"}


def head(script: Path) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script.read_text(), re.M))


def started(root: Path, folder: Path, name: str, *flags: str, **environment: str) -> tuple[list[str], str]:
    """The flags that run.sh gets from the script, and its PROFILER."""
    run = folder / "run.sh"
    run.write_text('#!/bin/sh\nprintf "%s\\n" "$PROFILER" "$@" >started\n')
    run.chmod(0o755)
    script = shutil.copy(root / "slurm" / f"{name}.sh", folder)
    subprocess.run([script, *flags], cwd=folder, env=os.environ | environment, check=True, capture_output=True)
    profiler, *rest = (folder / "started").read_text().splitlines()
    return rest, profiler


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_head_is_that_of_run_sh(root, name):
    script = root / "slurm" / f"{name}.sh"
    assert os.access(script, os.X_OK)
    mine, theirs = head(script), head(root / "run.sh")
    assert {key: mine.get(key) for key in theirs if key not in THEIR_OWN} == {
        key: value for key, value in theirs.items() if key not in THEIR_OWN
    }
    assert set(mine) - set(theirs) <= {"array"}
    assert mine["ntasks-per-node"] == mine["gpus-per-node"]
    assert not re.search(r"^#\s+SBATCH --", script.read_text(), re.M)


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_flags_are_main_pys_and_mine_come_last(root, tmp_path, name):
    flags, profiler = started(root, tmp_path, name, "--epochs", "7", SLURM_ARRAY_TASK_ID="0")
    args = options.parse(flags)
    assert args.epochs == 7
    assert args.strategy == ("none" if name in ("baseline", "profile_ncu") else "ddp")
    assert profiler.partition(" ")[0] == (name.removeprefix("profile_") if name.startswith("profile") else "")


def test_every_index_of_the_array_is_another_pair(root, tmp_path):
    first, last = map(int, head(root / "slurm" / "sensitivity.sh")["array"].split("-"))
    pairs = []
    for index in range(first, last + 1):
        args = options.parse(started(root, tmp_path, "sensitivity", SLURM_ARRAY_TASK_ID=str(index))[0])
        pairs.append((args.bucket_cap_mb, args.precision))
    assert len(set(pairs)) == len(pairs) == 8
