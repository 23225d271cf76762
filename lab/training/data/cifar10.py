"""CIFAR-10 through torchvision: downloaded once, and never taken for whole before every checksum was right."""

import contextlib
import errno
import http.client
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lab.base.errors import UserError
from lab.training.data.download import fetch_line
from lab.training.data.image_cache import LabelledImages, note

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NETWORK_TIMEOUT = 30.0  # seconds without an answer


def load_cifar10(data_dir: Path) -> tuple[tuple[str, ...], dict[str, LabelledImages]]:
    """Read the splits "train" and "test", downloading them first if need be; return the classes and the splits.

    Raises UserError when the download fails or the folder cannot be read or written.
    """
    # Imported here, because torchvision takes a second and most runs do without it.
    from torchvision.datasets import CIFAR10

    test = _test_images(data_dir)
    if test is None:
        _download(data_dir)
    try:
        parts = {
            "train": CIFAR10(data_dir, train=True),
            "test": CIFAR10(data_dir, train=False) if test is None else test,
        }
    except OSError as error:
        raise UserError(f"Cannot read CIFAR-10 in {data_dir}: {error}.") from error
    splits = {
        # torchvision shows its [N, 3, 32, 32] array as [N, 32, 32, 3]; this undoes it without a copy.
        split: LabelledImages(
            torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(part.targets)
        )
        for split, part in parts.items()
    }
    return tuple(parts["train"].classes), splits


def _test_images(data_dir: Path) -> "CIFAR10 | None":
    """None where the files of the data set, those of both splits, are not there or not whole."""
    from torchvision.datasets import CIFAR10

    try:
        return CIFAR10(data_dir, train=False)  # compares the files of both splits with their checksums
    except RuntimeError:  # "Dataset not found or corrupted", "Dataset metadata file not found or corrupted"
        return None
    except OSError as error:
        raise UserError(f"Cannot read CIFAR-10 in {data_dir}: {error}.") from error


def _download(data_dir: Path) -> None:
    """Put torchvision's unpacked folder into data_dir, whole or not at all.

    An archive that lies in data_dir already is unpacked instead, if its checksum is right.
    """
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import check_integrity

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".downloading-", dir=data_dir)
    except OSError as error:
        raise UserError(
            f"There is no whole CIFAR-10 in {data_dir}, and it cannot be downloaded there ({error.strerror}): "
            "choose a --data-dir that you may write to."
        ) from error
    with temporary as folder:
        archive = data_dir / CIFAR10.filename
        if check_integrity(archive, CIFAR10.tgz_md5):
            note(f"Unpacking {archive}")
            os.symlink(archive.resolve(), Path(folder) / CIFAR10.filename)
        else:
            note(f"Downloading CIFAR-10 from {CIFAR10.url} to {data_dir}")
        try:
            with _network_timeout(NETWORK_TIMEOUT):
                CIFAR10(folder, download=True)
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            reason = str(getattr(error, "reason", None) or error).rstrip(".")
            raise UserError(
                f"CIFAR-10 could not be downloaded to {data_dir} ({reason}): where there is internet, as on a "
                f"login node, type `{fetch_line('cifar10', data_dir)}`, or put {CIFAR10.url} there by hand, or "
                "take --dataset shapes, which needs no download."
            ) from error
        _put_in_place(Path(folder), data_dir)


def _put_in_place(folder: Path, data_dir: Path) -> None:
    """Move the unpacked files from `folder` to data_dir, unless another process has done so meanwhile."""
    from torchvision.datasets import CIFAR10

    source, target = folder / CIFAR10.base_folder, data_dir / CIFAR10.base_folder
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if _test_images(data_dir) is None:
            target.rename(folder / "damaged")
            source.rename(target)


@contextlib.contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    """torchvision sets none, and behind a firewall that drops packets it would wait for minutes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
