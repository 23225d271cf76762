"""What ranks observe of the loaders and of ValidationShards: which samples each rank draws, and validates."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import NumberedImages, attempt, dtype
from lab.checks.common.meta_device import one_gpu_a_node
from lab.checks.data.shard import FILLER, VALID_FIRST, describe_shard, number_of, number_samples, right_shards
from lab.ranks.rank import Rank


def make_loaders(data: Any, config: dict[str, Any]) -> Any:
    """What get_dataloaders returns for the judge's data sets, numbered from `first` and from 1000."""
    return data.get_dataloaders(
        NumberedImages(config["train"], first=config.get("first", 0)),
        NumberedImages(config["valid"], first=VALID_FIRST),
        config["global_batch_size"],
        num_workers=config["num_workers"],
        seed=config["seed"],
        **config.get("options", {}),
    )


def sample_epochs(rank: Rank) -> dict[str, Any]:
    """Draw from the training loader as often as each of the judge's configurations says."""
    data = rank.student("data")
    given = rank.receive()
    earlier: list[Any] = []
    with right_shards(data):
        return {
            "drawn": [sample_config(rank, data, config, earlier) for config in given["configs"]],
            "refused": [{"error": attempt_loaders(rank, data, config)["error"]} for config in given["refused"]],
        }


def sample_config(rank: Rank, data: Any, config: dict[str, Any], earlier: list[Any]) -> dict[str, Any]:
    """Args: earlier: what came out of the calls before; gets what comes out of this one."""
    made = attempt_loaders(rank, data, config)
    loaders = made["value"]
    report: dict[str, Any] = {
        "error": made["error"], "set_epoch": False, "num_workers": [], "epochs": [], "options": [],
        "sampler_seed": -1, "valid_batch": -1, "valid_shuffled": False, "valid_sampled": "",
        "valid_drops": False, "valid_reads": "", "shard": [], "sampler_of": "", "validated": [],
        "validation_error": None,
        "sampler_type": "", "sampler_set_epoch": False, "remembered": "",
    }  # fmt: skip
    if not isinstance(loaders, tuple | list) or len(loaders) != 2:
        return {"returned": describe_type(loaders), **report}
    loader, valid = loaders
    sampler = getattr(loader, "sampler", None)
    made_of = {
        "loaders": loaders, "training loader": loader, "validation loader": valid, "sampler": sampler,
        "validation loader's data set": getattr(valid, "dataset", None),
    }  # fmt: skip
    kept = [name for name, one in made_of.items() if any(one is other for other in earlier)]
    report["remembered"] = next(iter(kept), "")
    report["sampler_of"] = describe_set(sampler)
    earlier += [one for one in made_of.values() if one is not None]
    set_epoch = find_set_epoch(loader)
    epochs = []
    workers = [int(getattr(one, "num_workers", 0)) for one in loaders]
    for epoch in config["epochs"] if workers[0] == 0 else []:
        if set_epoch is not None:
            set_epoch(epoch)
        drawn = attempt(rank, lambda: [number_images(batch) for batch in loader])
        if drawn["error"]:
            return {"returned": "two", **report, "error": drawn["error"]}
        epochs.append(drawn["value"])
    drawn = attempt(rank, lambda: [number_samples(batch) for batch in valid] if epochs else [])
    return {
        "returned": "two",
        "error": None,
        "set_epoch": set_epoch is not None,
        "num_workers": workers,
        "epochs": epochs,
        "options": [
            {name: repr(getattr(one, name, None)) for name in config.get("options", {})} for one in loaders
        ],
        "sampler_seed": find_seed(loader),
        "valid_batch": int(getattr(valid, "batch_size", None) or -1),
        "valid_shuffled": isinstance(getattr(valid, "sampler", None), RandomSampler),
        "valid_sampled": describe_sampler(valid),
        "valid_drops": bool(getattr(valid, "drop_last", False)),
        "valid_reads": describe_set(valid),
        "shard": describe_shard(valid),
        "validated": drawn["value"] or [],
        "validation_error": drawn["error"],
        "sampler_of": report["sampler_of"],
        "sampler_type": type(sampler).__name__,
        "sampler_set_epoch": hasattr(sampler, "set_epoch"),
        "remembered": report["remembered"],
    }


def describe_sampler(loader: Any) -> str:
    """The type of a sampler that takes a rank's part; "" for others."""
    sampler = getattr(loader, "sampler", None)
    return type(sampler).__name__ if isinstance(sampler, DistributedSampler) else ""


def describe_set(reader: Any) -> str:
    """Which of the judge's data sets a loader or a sampler reads as it is; "" for anything made of them."""
    dataset = getattr(reader, "dataset", None)
    if not isinstance(dataset, NumberedImages):
        return ""
    return "validation" if dataset.first == VALID_FIRST else "training"


def attempt_loaders(rank: Rank, data: Any, config: dict[str, Any]) -> dict[str, Any]:
    with ExitStack() as stack:
        if config.get("sees_gpu"):
            stack.enter_context(one_gpu_a_node())
        return attempt(rank, make_loaders, data, config)


def find_set_epoch(loader: Any) -> Callable[[int], None] | None:
    """The set_epoch of the loader's sampler, or of whatever takes the place of one."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None), loader]
    return next((place.set_epoch for place in places if hasattr(place, "set_epoch")), None)


def find_seed(loader: Any) -> int:
    """The seed of the loader's DistributedSampler; -1 if it has none."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = [getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)]
    return next((int(place.seed) for place in places if isinstance(place, DistributedSampler)), -1)


def number_images(batch: Any) -> list[int]:
    """The numbers of a batch's samples; [-1] for anything but (images, labels)."""
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[0], Tensor):
        return [-1]
    images, labels = batch
    if not isinstance(labels, Tensor) or len(labels) != len(images):
        return [-1]
    return [int(number) for number in images.flatten(1)[:, 0].tolist()]


def describe_type(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


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
