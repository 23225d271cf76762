"""Options: which images, how they are changed and how they are loaded. No torch."""

import argparse
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options.numbers import not_negative, positive
from lab.runs.options.own import is_own, metavar, one_of_or_own

DATASETS = ("shapes", "sample", "cifar10", "mnist", "imagefolder")
WITHOUT_FILES = {"shapes": "shapes are drawn in code", "sample": "its photographs come with the lab"}

DEFAULT_PREFETCH = 2  # PyTorch's own
DEFAULT_IMAGE_SIZE = 32  # pixels, height and width
IMAGE_SIZES = (64, 224)  # smallest and largest of --image-size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--dataset",
        type=one_of_or_own(DATASETS),
        metavar=metavar(DATASETS),
        default="shapes",
        help="shapes: drawn in code, no files; sample: 75 photographs that come with the lab; cifar10, "
        "mnist: downloaded once; imagefolder: DIR/train/<class>/ with DIR/val/ or DIR/test/ beside it; FILE:NAME: "
        "your own",
    )
    group.add_argument(
        "--image-size",
        type=positive(int),
        metavar="N",
        help="height and width to which images are resized and cut, {} to {}, for resnet18, vit and networks of "
        "your own (default: {}; mnist 28, vgg19 always 224)".format(*IMAGE_SIZES, DEFAULT_IMAGE_SIZE),
    )
    group.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where data set and weights are or will be stored"
    )
    group.add_argument(
        "--validation",
        choices=("split", "test"),
        default="split",
        help="split: the data set's own validation images, or a fixed tenth of the training images where it "
        "has none, and the test images are evaluated once at the end; test: the test images",
    )
    group.add_argument(
        "--augment",
        action=argparse.BooleanOptionalAction,
        help="shift training images by up to 4 pixels (vgg19: any 224x224 of 256x256) and mirror half of them, "
        "but for digits (default: on for photographs, off with the exercises' cnn)",
    )
    group.add_argument(
        "--randaugment", action="store_true", help="two more random changes of shape or colour; implies --augment"
    )
    group.add_argument(
        "--input",
        choices=("loader", "device"),
        default="loader",
        help="device: put all training images on the device before the first step, and change them there with "
        "--augment, so that loading takes no part in what is measured; the training is the same",
    )
    group.add_argument(
        "--num-workers", type=not_negative(int), default=0, metavar="N", help="loader processes per rank"
    )
    group.add_argument(
        "--pin-memory",
        action=argparse.BooleanOptionalAction,
        help="put batches where the GPU can fetch them by itself (default: on with a GPU)",
    )
    group.add_argument(
        "--persistent-workers", action="store_true", help="keep the loader processes from epoch to epoch"
    )
    group.add_argument(
        "--prefetch",
        type=positive(int),
        metavar="N",
        help=f"batches that each loader process prepares ahead (default: {DEFAULT_PREFETCH})",
    )


def resolve(options: argparse.Namespace, resolved: argparse.Namespace) -> list[str]:
    """Fill in augment. Returns warnings; raises UsageError where network and data do not fit each other."""
    warnings: list[str] = []
    _check_images(options)
    needs_files = options.dataset not in WITHOUT_FILES and not is_own(options.dataset)
    if (needs_files or options.pretrained) and options.data_dir is None:
        what = "the images" if needs_files else "the ImageNet weights"
        option = f"--dataset {options.dataset}" if needs_files else "--pretrained"
        raise UsageError(f"{option} needs --data-dir, the folder that holds {what}")
    if options.dataset in WITHOUT_FILES and options.data_dir is not None and not options.pretrained:
        warnings.append(f"--data-dir has no effect: {WITHOUT_FILES[options.dataset]}")

    if options.randaugment and options.augment is False:
        raise UsageError("--randaugment contradicts --no-augment: leave out one of them")
    if options.randaugment and options.augment and not is_own(options.dataset):
        warnings.append("--augment has no effect beside --randaugment, which implies it")
    if is_own(options.dataset):
        for option, given in (("--augment", options.augment), ("--randaugment", options.randaugment)):
            if given:
                raise UsageError(f"{option} cannot change the images of {options.dataset}: let it change its own")
        if options.augment is False:
            warnings.append(
                f"--no-augment has no effect on --dataset {options.dataset}, which changes its own images"
            )
    if options.augment is None:
        natural = options.dataset in ("cifar10", "imagefolder", "sample") or (
            options.model == "vgg19" and not is_own(options.dataset)
        )
        resolved.augment = options.randaugment or (natural and options.model != "cnn")
    if options.input == "device":
        if options.randaugment:
            raise UsageError("--input device cannot make the changes of --randaugment: leave out one of them")
        keep_their_sizes = options.model == "vgg19" or options.image_size is not None
        if resolved.augment and keep_their_sizes and options.dataset in ("imagefolder", "sample"):
            raise UsageError(
                "--input device with --augment needs images of one size, and those of photographs keep their "
                "own with vgg19 or --image-size: add --no-augment, or use --input loader"
            )
        if options.num_workers:
            warnings.append("--num-workers serves the validation images only: --input device loads no others")

    if options.num_workers == 0:
        for option, given in (
            ("--persistent-workers", options.persistent_workers),
            ("--prefetch", options.prefetch is not None),
        ):
            if given:
                warnings.append(f"{option} has no effect without loader processes: add --num-workers")
    elif options.persistent_workers and options.epochs == 1 and options.measure_steps is None:
        warnings.append("--persistent-workers has no effect with --epochs 1")
    return warnings


def _check_images(options: argparse.Namespace) -> None:
    """mnist and mnist_cnn go together. To pad digits and repeat them in three colours, so that another network
    takes them, would change what is measured without a word.
    """
    if options.image_size is not None:
        _check_size(options)
    if is_own(options.dataset) or is_own(options.model):
        return
    if options.dataset == "mnist" and options.model != "mnist_cnn":
        raise UsageError(
            f"--model {options.model} takes colour images, those of mnist are 28x28 in grey: add --model mnist_cnn"
        )
    if options.model == "mnist_cnn" and options.dataset != "mnist":
        raise UsageError(
            f"--model mnist_cnn takes 28x28 grey images, those of {options.dataset} are in colour: add "
            "--dataset mnist --data-dir DIR"
        )


def _check_size(options: argparse.Namespace) -> None:
    size, (smallest, largest) = options.image_size, IMAGE_SIZES
    if not smallest <= size <= largest:
        raise UsageError(f"--image-size {size} is not between {smallest} and {largest}: leave it out for 32x32")
    if is_own(options.dataset):
        raise UsageError(f"--image-size cannot resize the images of {options.dataset}: let it resize its own")
    if not is_own(options.model) and options.model not in ("resnet18", "vit"):
        raise UsageError(
            f"--model {options.model} takes one size only: leave out --image-size, or use --model resnet18 or vit"
        )
    if options.model == "vit" and size % patch_size(size):
        raise UsageError(
            f"--image-size {size} cannot be parted into the vit's patches of {patch_size(size)} pixels: use "
            f"{size // patch_size(size) * patch_size(size)}"
        )


def patch_size(image_size: int) -> int:
    """Pixels, height and width, of the patches that a vit makes of an image: 64 to 256 of them."""
    return 16 if image_size >= 128 else 8 if image_size >= 64 else 4


def input_options(options: argparse.Namespace) -> dict[str, object]:
    """Keyword arguments for load_datasets(), from resolved options."""
    names = ("pretrained", "augment", "randaugment", "seed", "image_size")
    chosen: dict[str, object] = {"network": options.model, **{name: getattr(options, name) for name in names}}
    if options.evaluate_only:
        chosen["evaluated_by"] = options.loader_batch_size
    return chosen


def loader_options(options: argparse.Namespace, device_type: str) -> dict[str, object]:
    """Keyword arguments for each DataLoader, from resolved options."""
    chosen: dict[str, object] = {"pin_memory": device_type == "cuda" and options.pin_memory is not False}
    if options.num_workers > 0:
        chosen["persistent_workers"] = options.persistent_workers
        chosen["prefetch_factor"] = options.prefetch or DEFAULT_PREFETCH
    return chosen
