"""What was read, for the start report; and whether images of one's own fit the network."""

import argparse
from dataclasses import dataclass
from typing import Any

from lab.base.errors import UserError
from lab.runs.options.data import DEFAULT_IMAGE_SIZE
from lab.runs.options.own import is_own


@dataclass(frozen=True)
class About:
    """What a data set came to."""

    images: dict[str, int]  # in "training", "validation" and maybe "test"
    classes: int
    size: int  # pixels, height and width, as the network gets them
    valid_from: str  # where the validation images come from
    skipped: tuple[str, ...]  # what lay there and was not read, and why

    def lines(self) -> list[str]:
        """For the start report."""
        counts = ", ".join(f"{count:,} {part}" for part, count in self.images.items())
        return [
            f"{counts} images of {self.classes} classes, {self.size}x{self.size}",
            f"validation: {self.valid_from}",
            *(f"skipped: {line}" for line in self.skipped),
        ]


def about(dataset: Any) -> About | None:
    """What is known of a training set, through whatever it is wrapped in."""
    while not hasattr(dataset, "about"):
        if not hasattr(dataset, "dataset"):
            return None
        dataset = dataset.dataset
    found: About | None = dataset.about
    return found


def check_own_images(args: argparse.Namespace, dataset: Any) -> None:
    """Whether a network of the lab takes the images of --dataset FILE:NAME.

    Raises:
        UserError: it takes others.
    """
    if not is_own(args.dataset) or is_own(args.model) or len(dataset) == 0:
        return
    side = args.image_size or DEFAULT_IMAGE_SIZE
    taken = {"mnist_cnn": [1, 28, 28], "vgg19": [3, 224, 224]}.get(args.model, [3, side, side])
    given = list(getattr(dataset[0][0], "shape", ()))
    if given != taken:
        raise UserError(
            f"--model {args.model} takes images {taken}, those of --dataset {args.dataset} are {given}: let the "
            "data set resize them, or choose another model"
        )
