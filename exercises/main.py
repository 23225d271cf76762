"""Section 5: putting it all together. Start it with torchrun, or on a cluster with sbatch run.sh."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from lab.training import options
from lab.training.datasets import load_datasets
from lab.training.errors import one_sentence_errors
from lab.training.filesystem import is_first_on_filesystem
from lab.training.run import EpochRecord, Run

from data import get_dataloaders, load_once
from ddp_utils import get_ddp_model
from distributed_utils import cleanup, setup
from fsdp_utils import get_fsdp1_model, get_fsdp_model
from model import build_model
from train import evaluate, train


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; `main.py --help` lists it."""
    return options.parse(argv)


def wrap_model(model: nn.Module, device: torch.device, args: argparse.Namespace) -> nn.Module:
    """The model on its device, wrapped as args.strategy says."""
    # TODO 5.1a: "none" only moves the model; "ddp" takes args.bucket_cap_mb, "fsdp" and "fsdp1" args.precision.
    raise NotImplementedError("Exercise 5.1a is not done yet: wrap_model() in main.py")


def build_optimizer(model: nn.Module, args: argparse.Namespace) -> Optimizer:
    """The optimizer of the wrapped model. args.learning_rate already follows the global batch size."""
    rate, decay = args.learning_rate, args.weight_decay
    if args.optimizer == "adam":
        return Adam(model.parameters(), lr=rate, weight_decay=decay)
    if args.optimizer == "adamw":
        return AdamW(model.parameters(), lr=rate, weight_decay=decay)
    return SGD(model.parameters(), lr=rate, momentum=args.momentum, weight_decay=decay)


def run(args: argparse.Namespace) -> list[EpochRecord]:
    """Everything from the process group to the last epoch."""
    # TODO 5.1b: join the process group, and leave it at the end. In between, in this order: open the run's
    # records with `with Run(args, device) as this_run:` and from then on use this_run.args; load the data, the
    # first process before the others; make the loaders, of args.loader_batch_size images over all ranks; build
    # the model from the same seed on every rank; this_run.prepare_model(model); wrap it; build the optimizer of
    # the wrapped model; this_run.begin(model, optimizer, train_loader). Unless it is a dry run: train, and then,
    # if there are test images, evaluate those for this_run.record_test(loss, accuracy). Return what train()
    # returned. load_datasets, get_dataloaders and build_model each take more options as their last arguments:
    # **options.input_options(args), **options.loader_options(args, device.type), **options.model_options(args).
    raise NotImplementedError("Exercise 5.1b is not done yet: run() in main.py")


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    with one_sentence_errors(code=Path(__file__).parent):
        options.require_launcher()
        run(args)


if __name__ == "__main__":
    main()
