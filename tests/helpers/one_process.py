"""A run in the test's own process, on the process group of the fixture world_of_one."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lab.runs import options
from lab.runs.records.epoch_record import EpochRecord
from lab.training.run import Run


def make_run(tmp_path: Path, *argv: str) -> Run:
    """A run in tmp_path/results/r, unless argv says otherwise."""
    args = options.parse(["--strategy", "none", "--output-dir", str(tmp_path / "results"), "--run-id", "r", *argv])
    return Run(args, torch.device("cpu"))


def make_loader(samples: int = 40, batch: int = 8, *, workers: int = 0) -> DataLoader:
    images, labels = torch.randn(samples, 4), torch.arange(samples) % 2
    return DataLoader(TensorDataset(images, labels), batch_size=batch, num_workers=workers)


def one_epoch(run: Run, model: nn.Module, loader: DataLoader, epoch: int) -> EpochRecord:
    """Train without an optimizer, evaluate one batch, record made-up figures."""
    for images, labels in run.batches(loader):
        run.backward(nn.functional.cross_entropy(model(images), labels))
    model.eval()
    model(images)
    model.train()
    return run.record(epoch, 0.5, 0.25, 0.75)
