"""lab fetch: download a data set or weights, on a machine with internet, for the runs on one without."""

import argparse
from pathlib import Path

HELP = "download a data set or weights, where there is internet, for runs where there is none"
WHAT = ("cifar10", "mnist", "vgg19")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=WHAT, help="a data set, or vgg19: its ImageNet weights")
    parser.add_argument(
        "--data-dir", type=Path, required=True, metavar="DIR", help="the folder that main.py will be given"
    )


def run(args: argparse.Namespace) -> int:
    folder = args.data_dir.expanduser()
    if args.what == "vgg19":
        from lab.training.data.weights import fetch_weights

        print(f"vgg19's ImageNet weights are in {fetch_weights(folder)}")
        print(f"Train with --model vgg19 --pretrained --data-dir {folder}")
        return 0
    from lab.training.data.datasets import load_datasets

    datasets = load_datasets(args.what, folder, cache_dir=folder, validation="test")
    model = " --model mnist_cnn" if args.what == "mnist" else ""
    print(f"{args.what} is in {folder}: {len(datasets.train):,} training and {len(datasets.valid):,} test images")
    print(f"Train with --dataset {args.what} --data-dir {folder}{model}")
    return 0
