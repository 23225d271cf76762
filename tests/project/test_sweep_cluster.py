"""A sweep through a real Slurm, sbatch and srun: the practice cluster on this machine, ranks on the CPU."""

import re
import sys

import pytest
from run_folders import write_few_images

from lab.sweep.collect import collect

pytestmark = pytest.mark.slurm


def test_a_sweep_through_sbatch_ends_in_results(root, cluster, tmp_path):
    for name in ("solutions", "run.sh", "lab", "slurm"):
        (tmp_path / name).symlink_to(root / name)
    sweep = "--launcher slurm --code solutions --devices 2 --strategies ddp --epochs 2 --global-batch-size 32"
    data = ("--", "--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    submitted = cluster.run(sys.executable, root / "run_benchmarks.py", *sweep.split(), *data, cwd=tmp_path)

    jobs = [line.split("job ")[1].split()[0] for line in submitted.stdout.splitlines() if "  job " in line]
    for job in jobs:
        assert cluster.wait(job, "COMPLETED")
    rows = collect(tmp_path / "results").rows
    assert [(row["strategy"], row["world_size"], row["status"], row["reason"]) for row in rows] == [
        *(("none", "1", "done", ""), ("ddp", "2", "done", ""))
    ]
    assert [row["jobid"] for row in rows] == jobs
    folder = tmp_path / "results" / rows[1]["run_id"]
    log = (folder / "train.log").read_text()
    assert re.search(rf"2 ranks on (node\d); they meet at \1:{10000 + int(jobs[1])}\n", log)
    assert log.count("[METRIC] epoch=1 ") == 1  # srun's output and the run's own log are the same file
    assert (folder / "train.err").exists()
    assert f"JobId={jobs[1]} " in (folder / f"slurm-{jobs[1]}" / "scontrol.txt").read_text()
