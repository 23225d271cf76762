"""What happens to the images of a data set on their way to a network."""

from lab.training.data.augment import Pipeline

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of each channel over its images
PADDING = 4  # pixels, around images of 28x28 and 32x32


def takes_imagenets_images(network: str) -> bool:
    """Whether a network was made for images of 224x224 in ImageNet's normalisation."""
    return network == "vgg19"


def size_of(network: str, image_size: int | None) -> int | None:
    """Pixels, height and width, to which images of any size are resized and cut; None leaves 32x32 (and 28x28)."""
    return 224 if takes_imagenets_images(network) else image_size


def pipelines(
    dataset: str,
    network: str,
    *,
    augment: bool,
    randaugment: bool,
    seed: int,
    image_size: int | None = None,
) -> tuple[Pipeline | None, Pipeline | None]:
    """For the training images and for all others; None leaves them as they are.

    32x32 (and 28x28): shifted by up to 4 pixels, and mirrored, unless they are digits. For ImageNet's networks:
    the shorter side resized to 256, of which 224x224, any and mirrored, or the middle; other sizes in proportion.
    """
    flip, whole = dataset != "mnist", size_of(network, image_size)
    if whole is not None:
        resize = round(whole * 256 / 224)
        still = Pipeline(whole, resize=resize)
        if not augment:
            return still, still
        return Pipeline(whole, resize=resize, flip=flip, randaugment=randaugment, seed=seed), still
    if not augment:
        return None, None
    size = 28 if dataset == "mnist" else 32
    return Pipeline(size, padding=PADDING, flip=flip, randaugment=randaugment, seed=seed), None
