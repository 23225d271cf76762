"""What ranks observe of a ValidationShard, read as a loader reads it, and as those of other ranks and worlds."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from lab.checks.common.attempt import NumberedImages, attempt, dtype
from lab.checks.data.observe import number_images
from lab.checks.data.shard import FILLER, VALID_FIRST, number_of
from lab.ranks.rank import Rank


def read_validation(rank: Rank) -> list[dict[str, Any]]:
    """Every batch of this rank's shard, for each of the judge's configurations."""
    data = rank.student("data")
    given = rank.receive()
    if not_started := attempt_shard(data, rank, given["configs"][0]["shape"]):
        raise not_started
    reports: list[dict[str, Any]] = []
    for config in given["configs"]:
        valid = NumberedImages(config["valid"], first=VALID_FIRST, shape=config["shape"], in_memory=True)
        # A loader as exercise 3.2 wants it: whether the student's is one, its own check says.
        shard = data.ValidationShard(valid, rank.rank, rank.world_size)
        batches = list(DataLoader(shard, config["batch"]))
        pairs = [batch for batch in batches if number_images(batch) != [-1]]
        alike = len({batch[0].shape[1:] for batch in pairs}) == 1
        reports.append(
            {
                "pairs": len(pairs) == len(batches),
                "sizes": [len(batch[1]) for batch in pairs],
                "images": torch.cat([batch[0] for batch in pairs]) if alike else None,
                "labels": [int(label) for batch in pairs for label in batch[1].flatten()],
                "shapes": [[list(part.shape[1:]) for part in batch] for batch in pairs],
                "types": sorted({dtype(batch[1]) for batch in pairs}),
                "image_types": sorted({dtype(batch[0]) for batch in pairs}),
                "overwritten": valid.overwritten(),
            }
        )
    return reports


def read_worlds(rank: Rank) -> list[dict[str, Any]]:
    """What the shards of all ranks of each of the judge's worlds hold, of several kinds of data sets."""
    data = rank.student("data")
    worlds = rank.receive()
    if not_started := attempt_shard(data, rank, worlds[0]["shape"]):
        raise not_started
    reports = []
    for world in worlds:
        errors = {one.__name__: one for one in (OSError, ValueError, RuntimeError)}
        damaged = {world["damaged"]: errors[world["error"]](world["message"])}
        reports.append(
            attempt(rank, read_world, data, world)
            | {
                "endless": attempt(rank, read_world, data, world, endless=True),
                "damaged": attempt(rank, read_world, data, world, damaged=damaged),
            }
        )
    return reports


def read_world(data: Any, world: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """For each rank of a world what its shard holds: the samples' numbers, -1 for filler, and how filler looks."""
    world_size, samples = world["world_size"], world["samples"]
    images = NumberedImages(torch.ones(samples, dtype=torch.int64), shape=world["shape"], **options)
    held = []
    for rank in range(world_size):
        shard = data.ValidationShard(images, rank, world_size)
        places = range(min(len(shard), samples + 1))
        parts = [shard[i] for i in places]
        again = {i: shard[i] for i in reversed(places)}
        filler = [image for image, label in parts if int(label) == FILLER]
        held.append(
            {
                "samples": [number_of(*one) for one in parts],
                "again": [number_of(*again[i]) for i in places],
                "shapes": [list(image.shape) for image in filler],
                "types": [dtype(image) for image in filler],
            }
        )
    return held


def attempt_shard(data: Any, rank: Rank, shape: tuple[int, ...]) -> NotImplementedError | None:
    """The error of ValidationShard's stub if it is still there: 3.3 is not started, whatever 3.2 is."""
    if not hasattr(data, "ValidationShard"):
        return None
    try:
        images = NumberedImages(torch.zeros(4, dtype=torch.int64), shape=shape)
        shard = data.ValidationShard(images, rank.rank, rank.world_size)
        len(shard)
        shard[0]
    except NotImplementedError as error:
        return error
    except Exception:  # noqa: BLE001 - whatever else is wrong shows in what the loader yields
        return None
    return None
