"""ImageNet weights for vgg19, as torchvision distributes them: one file, its checksum in its name."""

import hashlib
from pathlib import Path

from lab.base.errors import UserError
from lab.runs.options.model import weights_path
from lab.training.data.download import download
from lab.training.data.image_cache import note


def fetch_weights(data_dir: Path) -> Path:
    """Download vgg19's weights unless they are there, whole; return their path.

    A file that was put there by hand is as good. Raises UserError when the download fails.
    """
    path = weights_path(data_dir)
    checksum = path.stem.rpartition("-")[2]
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"Cannot read the weights {path}: {error.strerror}.") from error
    else:
        if found.startswith(checksum):
            return path
        note(f"Not using {path}: it is damaged (its checksum is not the {checksum} of its name)")
    from torchvision.models import VGG19_Weights

    url = VGG19_Weights.IMAGENET1K_V1.url
    download([url], path, algorithm="sha256", digest=checksum, what="vgg19", data_dir=data_dir)
    return path
