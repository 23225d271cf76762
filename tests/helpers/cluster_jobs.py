"""The package that cluster tests submit from, and programs that stand in for main.py there."""

import csv
import shutil
from pathlib import Path

from run_folders import write_few_images

EPOCHS = 4  # of 64 images in 2 steps
SMALL = ("--dataset", "imagefolder", "--global-batch-size", "32")

# Says what each rank was given, and needs no PyTorch.
LOOK = """
import glob, os, time
names = "SLURM_PROCID RANK CUDA_VISIBLE_DEVICES OMP_NUM_THREADS TORCH_FR_DUMP_TEMP_FILE NCCL_DEBUG_FILE"
line = ["look", *(os.environ.get(name, "-") for name in names.split()), os.uname().nodename]
os.write(1, (" ".join(line) + "\\n").encode())  # at once: print() would let two ranks mix their words
wanted, pattern = os.environ.get("LOOK_UNTIL", "0 -").split()  # so many files with something in them
deadline = time.monotonic() + 220
def written(): return sum(os.path.getsize(file) > 100 for file in glob.glob(pattern))
while written() < int(wanted) and time.monotonic() < deadline:
    time.sleep(0.2)
"""

# The reference, but rank 1 fails when the first epoch is recorded.
RAISES = """
import runpy, sys
sys.path.insert(0, "solutions")
import torch.distributed as dist
from lab.training.run import Run
record = Run.record
def failing(self, *arguments):
    if dist.get_rank() == 1:
        raise RuntimeError("a bug on rank 1")
    return record(self, *arguments)
Run.record = failing
runpy.run_path("solutions/main.py", run_name="__main__")
"""

# The reference, but after two epochs it waits until it is told to stop, unless it was so before.
WAITS = """
import os, runpy, sys, time
sys.path.insert(0, "solutions")
from lab.training.run import Run
record = Run.record
def waiting(self, epoch, *figures):
    result = record(self, epoch, *figures)
    while epoch == 2 and "SLURM_RESTART_COUNT" not in os.environ and self._context.signals.received is None:
        time.sleep(0.05)
    return result
Run.record = waiting
runpy.run_path("solutions/main.py", run_name="__main__")
"""

# The reference, with MNIST from a server of the test's own.
MIRROR = """
import runpy, sys
sys.path.insert(0, "solutions")
from torchvision.datasets import MNIST
MNIST.mirrors, MNIST.resources = {mirrors!r}, {resources!r}
runpy.run_path("solutions/main.py", run_name="__main__")
"""


def write_package(root: Path, folder: Path) -> Path:
    """A folder to submit from: run.sh as students have it, the reference, and little data."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("solutions", "lab", "slurm"):
        (folder / name).symlink_to(root / name)
    shutil.copy(root / "run.sh", folder)
    write_few_images(folder / "data")
    for name, text in (("look", LOOK), ("raises", RAISES), ("waits", WAITS)):
        write_program(folder / name, text)
    return folder


def write_program(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "main.py").write_text(text)


def losses(run: Path) -> list[tuple[str, ...]]:
    """Epoch, phase, loss and accuracy: all of metrics.csv that is not time."""
    with (run / "metrics.csv").open(newline="") as file:
        return [(row["epoch"], row["phase"], row["loss"], row["accuracy"]) for row in csv.DictReader(file)]
