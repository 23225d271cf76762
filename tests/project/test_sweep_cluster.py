"""A sweep through a real Slurm, sbatch and srun: a one-node cluster on this machine, ranks on the CPU."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from run_folders import write_few_images

from lab.sweep.collect import collect

pytestmark = pytest.mark.slurm


@pytest.fixture
def cluster(shared, tmp_path):
    """The command that runs another one inside a fresh cluster."""
    if shutil.which("sbatch") is None or os.geteuid() != 0:
        pytest.skip("needs Slurm (make services) and root")
    tool = ["bash", str(shared / "tools" / "slurm_cluster.sh")]
    size = {"SLURM_CI_NODES": "1", "SLURM_CI_CPUS": "32", "SLURM_CI_GPUS": "4", "SLURM_CI_ACCT": "0"}
    state = tempfile.mkdtemp(prefix="slurm-")  # not tmp_path: the user slurm could not enter it
    os.chmod(state, 0o755)
    environment = {**os.environ, **size, "SLURM_CI_DIR": state, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

    def inside(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*tool, "exec", *map(str, command)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    try:
        subprocess.run([*tool, "start"], env=environment, check=True, timeout=120)
        yield inside
    finally:
        subprocess.run([*tool, "stop"], env=environment, check=True, timeout=60)
        shutil.rmtree(state)


def test_a_sweep_through_sbatch_ends_in_results(root, cluster, tmp_path):
    for name in ("solutions", "run.sh", "lab"):
        (tmp_path / name).symlink_to(root / name)
    sweep = "--launcher slurm --code solutions --devices 2 --strategies ddp --epochs 2 --global-batch-size 32"
    data = ("--", "--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    submitted = cluster(sys.executable, root / "run_benchmarks.py", *sweep.split(), *data)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr

    deadline = time.monotonic() + 240
    while cluster("squeue", "--noheader").stdout.strip():
        assert time.monotonic() < deadline, "the jobs did not end"
        time.sleep(0.5)
    rows = collect(tmp_path / "results").rows
    assert [(row["strategy"], row["world_size"], row["status"], row["reason"]) for row in rows] == [
        *(("none", "1", "done", ""), ("ddp", "2", "done", ""))
    ]
    assert [row["jobid"] for row in rows] == ["1", "2"]
    folder = tmp_path / "results" / rows[1]["run_id"]
    log = (folder / "train.log").read_text()
    assert "2 tasks on node1; they meet at node1:10002" in log
    assert log.count("[METRIC] epoch=1 ") == 1  # srun's output and the run's own log are the same file
    assert (folder / "train.err").exists()
