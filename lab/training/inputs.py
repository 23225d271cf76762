"""What a run's options ask for on the input side: the data set, and what happens to its images on their way."""

import argparse
from dataclasses import replace

from lab.training.augment import Pipeline
from lab.training.datasets import IMAGENET, DataSets, load_datasets
from lab.training.weights import fetch_weights

PADDING = 4  # pixels, around images of 28x28 and 32x32


def load_inputs(args: argparse.Namespace) -> DataSets:
    """The data sets, ready for the network; what is missing of them and of the network's weights is downloaded.

    To be called on one process of each file system first, as load_once does.

    Args:
        args: resolved options.

    Raises:
        UserError: something is missing or damaged and cannot be downloaded.
    """
    if args.pretrained:
        fetch_weights(args.data_dir)
    for_imagenet = args.model == "vgg19"
    datasets = load_datasets(
        args.dataset,
        args.data_dir,
        cache_dir=args.output_dir,
        validation=args.validation,
        full_size=for_imagenet,
    )
    if for_imagenet:
        train, still = _imagenet_pipeline(args, augment=args.augment), _imagenet_pipeline(args, augment=False)
        return replace(
            datasets,
            train=datasets.train.through(train, *IMAGENET),
            valid=datasets.valid.through(still, *IMAGENET),
            test=datasets.test and datasets.test.through(still, *IMAGENET),
        )
    if args.augment:
        return replace(datasets, train=datasets.train.through(_augmentation(args)))
    return datasets


def _augmentation(args: argparse.Namespace) -> Pipeline:
    """For small images: shifted by up to 4 pixels, and mirrored, unless they are digits."""
    digits = args.dataset == "mnist"
    return Pipeline(
        28 if digits else 32, padding=PADDING, flip=not digits, randaugment=args.randaugment, seed=args.seed
    )


def _imagenet_pipeline(args: argparse.Namespace, *, augment: bool) -> Pipeline:
    """For networks made for ImageNet: the shorter side resized to 256, of which 224x224, any or the middle."""
    if not augment:
        return Pipeline(224, resize=256)
    return Pipeline(224, resize=256, flip=True, randaugment=args.randaugment, seed=args.seed)
