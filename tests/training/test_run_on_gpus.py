"""The training machinery with nccl, on one GPU and on two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    ("name", "things"),
    [("gpu_run.py", 13), ("gpu_capture.py", 34), ("gpu_compile.py", 20), ("gpu_checkpoint.py", 10)],
)
def test_what_holds_on_the_cpu_holds_on_gpus(name, things, gpus, root, tmp_path):
    if torch.cuda.device_count() < gpus:
        pytest.skip(f"needs {gpus} CUDA devices")
    script = str(Path(__file__).parents[1] / "helpers" / name)
    argv = [*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)), script, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    print(done.stdout)
    assert done.stdout.count("HOLDS") == things, done.stdout + done.stderr
