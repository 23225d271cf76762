"""Section 5: putting it all together. Start it with torchrun, or on a cluster with sbatch run.sh."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from lab.training import (
    DataSets,
    EpochRecord,
    Run,
    is_first_on_filesystem,
    is_own,
    load_datasets,
    load_own,
    one_sentence_errors,
    options,
)

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
    # With **options.shard_options(args) for "fsdp", your program knows --shard hybrid too.
    ### BEGIN SOLUTION 5.1a
    if args.strategy == "ddp":
        return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)
    if args.strategy == "fsdp":
        return get_fsdp_model(model, device, precision=args.precision, **options.shard_options(args))
    if args.strategy == "fsdp1":
        return get_fsdp1_model(model, device, precision=args.precision)
    return model.to(device)
    ### END SOLUTION


def build_optimizer(model: nn.Module, args: argparse.Namespace) -> Optimizer:
    """The optimizer of the wrapped model. args.learning_rate already follows the global batch size."""
    rate, decay = args.learning_rate, args.weight_decay
    if is_own(args.optimizer):
        return load_own("--optimizer", args.optimizer)(model.parameters(), lr=rate, weight_decay=decay)
    if args.optimizer == "adam":
        return Adam(model.parameters(), lr=rate, weight_decay=decay)
    if args.optimizer == "adamw":
        return AdamW(model.parameters(), lr=rate, weight_decay=decay)
    return SGD(model.parameters(), lr=rate, momentum=args.momentum, weight_decay=decay)


def read_datasets(args: argparse.Namespace) -> DataSets:
    """The data set of the command line: .train, .valid, .test (None where there is none), .classes (names)."""
    return load_datasets(
        args.dataset,
        args.data_dir,
        cache_dir=args.output_dir,
        validation=args.validation,
        **options.input_options(args),
    )


def loading_options(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """What get_dataloaders() is to be told besides the data sets and the batch size."""
    return {"num_workers": args.num_workers, "seed": args.seed, **options.loader_options(args, device.type)}


def run(args: argparse.Namespace) -> list[EpochRecord]:
    """Everything from the process group to the last epoch."""
    # TODO 5.1b: the whole run, from what the other modules have. Each step needs the one before it.
    #  1. setup() joins the process group and returns the device.
    #  2. Steps 3 to 8 go inside `with Run(args, device) as this_run:`. From here on take args = this_run.args:
    #     it knows the batch sizes and the learning rate for this many ranks.
    #  3. load_once() the data sets. read_datasets(args) loads them;
    #     is_first_on_filesystem(args.data_dir or args.output_dir) says whether this process goes first.
    #  4. get_dataloaders() of args.loader_batch_size images over all ranks, with **loading_options(args, device).
    #  5. Seed torch with args.seed, so that every rank starts from the same weights; then build_model(), for as
    #     many classes as the data has, with **options.model_options(args).
    #  6. model = this_run.prepare_model(model); wrap_model(); build_optimizer() of the wrapped model.
    #  7. this_run.begin(model, optimizer, train_loader). A dry run skips step 8.
    #  8. train(). Then, if datasets.test is not None, evaluate() the test images, in a loader that
    #     get_dataloaders() makes of them as it made valid_loader; this_run.record_test(loss, accuracy) of that.
    #     With args.evaluate_only, in place of step 8: this_run.evaluate(model, datasets, loader), where
    #     loader(images) returns the loader that get_dataloaders() makes of them as it made valid_loader.
    #  9. After the `with`: cleanup(), and return what train() returned; [] after a dry run.
    ### BEGIN SOLUTION 5.1b
    device = setup()
    records = []
    with Run(args, device) as this_run:
        args = this_run.args
        is_first = is_first_on_filesystem(args.data_dir or args.output_dir)
        datasets = load_once(lambda: read_datasets(args), is_first)
        size, loading = args.loader_batch_size, loading_options(args, device)
        train_loader, valid_loader = get_dataloaders(datasets.train, datasets.valid, size, **loading)

        torch.manual_seed(args.seed)
        model = build_model(args.model, len(datasets.classes), **options.model_options(args))
        model = this_run.prepare_model(model)
        model = wrap_model(model, device, args)
        optimizer = build_optimizer(model, args)

        this_run.begin(model, optimizer, train_loader)
        if args.evaluate_only:
            this_run.evaluate(
                model, datasets, lambda images: get_dataloaders(datasets.train, images, size, **loading)[1]
            )
        elif not args.dry_run:
            records = train(model, optimizer, train_loader, valid_loader, this_run)
            if datasets.test is not None:
                _, test_loader = get_dataloaders(datasets.train, datasets.test, size, **loading)
                test = evaluate(model, test_loader, device)
                this_run.record_test(test.loss, test.accuracy)
    cleanup()
    return records
    ### END SOLUTION


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    with one_sentence_errors(code=Path(__file__).parent):
        options.require_launcher()
        run(args)


if __name__ == "__main__":
    main()
