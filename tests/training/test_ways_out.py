"""However a run ends, its processes end: no loader worker keeps a rank, and with it a cluster job, alive."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 120  # seconds; a rank that a worker keeps alive stays for ever
STARTING = 100  # seconds

DATA = """
import os, signal, time
import torch
from lab.training import DataSets

class Images(torch.utils.data.Dataset):
    def __init__(self, count, kind):
        self.count, self.kind = count, kind
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        image, label = torch.zeros(3, 32, 32), index % 10
        if index == 37:
            if self.kind == "data":
                raise KeyError("this image is broken")
            if self.kind == "killed" and torch.utils.data.get_worker_info():
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "loss":
                label = 99
            if self.kind == "nan":
                image += torch.nan
            if self.kind == "told":
                os.kill(int(os.environ["RANK_PID"]), signal.SIGTERM)
            if self.kind == "interrupted":
                print("here", flush=True)
                time.sleep(600)
        return image, label

def load(*_, **__):
    os.environ["RANK_PID"] = str(os.getpid())
    kind = os.environ["KIND"]
    bad = kind if kind == "evaluation" else ""
    return DataSets(Images(400, kind), Images(40, "data" if bad else ""), None, tuple("0123456789"))
"""

# How it ends -> the exit code, None for whatever a signal gives; and the word in status.json.
ENDS = {
    "done": (0, "done"),
    "data": (1, "failed"),
    "killed": (1, "failed"),
    "loss": (1, "failed"),
    "evaluation": (1, "failed"),
    "nan": (1, "failed"),
    "told": (85, "interrupted"),
    "interrupted": (None, "interrupted"),
}
WORKERS = {"none": ("0",), "new": ("2",), "persistent": ("2", "--persistent-workers")}
IN_CI = {("data", "new", 1), ("killed", "persistent", 1), ("loss", "persistent", 1), ("told", "new", 2)}
IN_CI |= {("interrupted", "none", 2)}


def cases() -> list:
    found = []
    for kind in ENDS:
        for workers in WORKERS:
            for ranks in (1, 2):
                if kind == "killed" and workers == "none":
                    continue
                marks = () if (kind, workers, ranks) in IN_CI else pytest.mark.slow
                found.append(pytest.param(kind, workers, ranks, marks=marks, id=f"{kind}-{workers}-{ranks}"))
    return found


@pytest.mark.parametrize(("kind", "workers", "ranks"), cases())
def test_every_process_ends(kind: str, workers: str, ranks: int, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "solutions", tmp_path / "code")
    (tmp_path / "code" / "images.py").write_text(DATA)
    count, *more = WORKERS[workers]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", str(ranks), "code/main.py", "--dataset", "images:load", "--epochs", "1"),
        *("--strategy", "ddp", "--global-batch-size", "16", "--num-workers", count, *more, "--run-id", "r"),
    ]
    env = {**os.environ, "PYTHONPATH": str(root), "KIND": kind}
    program = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    said = ""
    try:
        if kind == "interrupted":
            for line in program.stdout:  # type: ignore[union-attr]
                said += line
                if line == "here\n":
                    break
            for _ in range(2):
                os.killpg(program.pid, signal.SIGINT)
        said += program.communicate(timeout=STARTING + PATIENCE)[0]
    except subprocess.TimeoutExpired:
        said = subprocess.run(["ps", "-ef", "--forest"], capture_output=True, text=True, check=False).stdout
        pytest.fail(f"{kind}: still there after {STARTING + PATIENCE} s\n{said[-3000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    if kind == "interrupted":
        assert said.count("main.py: stopped by Ctrl-C\n") == 1
        assert "KeyboardInterrupt" not in said, said  # the lines that remain are torchrun's own
    code, status = ENDS[kind]
    if code is not None:
        assert (program.returncode == 0) == (code == 0), said
        assert code in (0, 1) or f"exitcode  : {code}" in said, said
    assert f'"status": "{status}"' in (tmp_path / "results" / "r" / "status.json").read_text(), said
