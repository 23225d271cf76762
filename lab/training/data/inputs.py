"""What happens to the images of a data set on their way to a network."""

from lab.training.data.augment import Pipeline

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of each channel over its images
PADDING = 4  # pixels, around images of 28x28 and 32x32


def takes_imagenets_images(network: str) -> bool:
    """Whether a network was made for images of 224x224 in ImageNet's normalisation."""
    return network == "vgg19"


def pipelines(
    dataset: str, network: str, *, augment: bool, randaugment: bool, seed: int
) -> tuple[Pipeline | None, Pipeline | None]:
    """For the training images and for all others; None leaves them as they are.

    32x32 (and 28x28): shifted by up to 4 pixels, and mirrored, unless they are digits. For ImageNet's networks:
    the shorter side resized to 256, of which 224x224, any and mirrored, or the middle.
    """
    if takes_imagenets_images(network):
        still = Pipeline(224, resize=256)
        if not augment:
            return still, still
        return Pipeline(224, resize=256, flip=True, randaugment=randaugment, seed=seed), still
    if not augment:
        return None, None
    size, flip = (28, False) if dataset == "mnist" else (32, True)
    return Pipeline(size, padding=PADDING, flip=flip, randaugment=randaugment, seed=seed), None
