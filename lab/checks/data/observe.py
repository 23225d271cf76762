"""What ranks observe of the student's data.py: who loads when, and which samples each rank draws."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import NumberedImages, attempt, dtype
from lab.ranks.rank import Rank

PATIENCE = 20.0  # seconds to wait for another rank that may never come
HEAD_START = 1.0  # seconds the first one's load takes at most, to see whether the others wait for it

# 3.1 --------------------------------------------------------------------------------------------------------


def watch_loading(rank: Rank) -> list[dict[str, Any]]:
    """Call load_once with each of the judge's layouts: what this rank did and when, on the machine's clock."""
    board = Board(rank)
    board.record_barriers()
    data = rank.student("data")
    reports = []
    for layout in rank.receive()["layouts"]:
        board.turn_over()
        token = Loaded()

        def load(is_first: bool = rank.rank in layout, token: object = token) -> object:
            board.note("load")
            if is_first:
                board.watch_the_others()
            board.note("loaded")
            return token

        result = data.load_once(load, is_first=rank.rank in layout)
        events = [{"what": what.split()[0], "time": when} for what, when in board.events]
        reports.append({"events": events, "own_result": result is token, "type": type(result).__name__})
        if not board.meet():
            break  # others hang in there; the judge sees them
    return reports


class Loaded:
    """What load() gives: a data set of no samples, so one that an `if` takes for False."""

    def __len__(self) -> int:
        return 0


class LeftBehindError(Exception):
    """Another rank waits in a barrier to which this one will never come."""


class Board:
    """What this rank does and when, for itself and, through the group's store, for the others.

    No collectives: they would pair with those of the student's code.
    """

    def __init__(self, rank: Rank) -> None:
        self.events: list[tuple[str, float]] = []
        self._rank = rank.rank
        self._others = [other for other in range(rank.world_size) if other != rank.rank]
        self._store = dist.distributed_c10d._get_default_store()
        self._page = self._barriers = 0

    def turn_over(self) -> None:
        """Begin anew."""
        self._page += 1
        self._barriers = 0
        self.events.clear()

    def note(self, what: str) -> None:
        self.events.append((what, time.monotonic()))
        self._store.set(self._key(what, self._rank), "1")

    def noted(self, what: str, rank: int) -> bool:
        return self._store.check([self._key(what, rank)])

    def wait(self, seconds: float, *whats: str) -> bool:
        """Whether every other rank has noted one of these in time."""
        end = time.monotonic() + seconds
        while not all(any(self.noted(what, other) for what in whats) for other in self._others):
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def meet(self) -> bool:
        """Whether all other ranks have come to the end of this page, too, in time.

        Raises LeftBehindError as soon as it is certain that one never will: it has begun a barrier more.
        """
        self.note("done")
        end = time.monotonic() + PATIENCE
        while missing := [other for other in self._others if not self.noted("done", other)]:
            if any(self.noted(f"barrier {self._barriers + 1}", other) for other in missing):
                raise LeftBehindError
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def watch_the_others(self) -> None:
        """In the first one's load: give the others the time to do what they should not do yet.

        Each of them loads too early, or is seen to come to a barrier. If this rank has a barrier behind it,
        they may have come from there too, so only loads count.
        """
        self.wait(HEAD_START, "load", *([] if self._barriers else ["barrier 1"]))

    def record_barriers(self) -> None:
        """Note every barrier. To be called before a student's module can take the function by name."""
        for name in ("barrier", "monitored_barrier"):
            recorded = self._recorded(getattr(dist, name))
            setattr(dist, name, recorded)
            setattr(dist.distributed_c10d, name, recorded)

    def _recorded(self, barrier: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._barriers += 1
            self.note(f"barrier {self._barriers}")
            return barrier(*args, **kwargs)

        return recorded

    def _key(self, what: str, rank: int) -> str:
        return f"check {self._page}: rank {rank}: {what}"


def fail_to_load(rank: Rank) -> dict[str, Any]:
    """Call load_once, as the only rank, with a load that raises."""
    data = rank.student("data")
    message = rank.receive()
    calls = 0

    def load() -> object:
        nonlocal calls
        calls += 1
        raise OSError(message)

    result = attempt(rank, data.load_once, load, is_first=True)
    return {"error": result["error"], "calls": calls}


# 3.2 and 3.3 ------------------------------------------------------------------------------------------------


def make_loaders(data: Any, config: dict[str, Any], valid: NumberedImages | None = None) -> Any:
    """What get_dataloaders returns for the judge's data sets, numbered from `first` and from 1000."""
    return data.get_dataloaders(
        NumberedImages(config["train"], first=config.get("first", 0)),
        valid or NumberedImages(config["valid"], first=1000),
        config["global_batch_size"],
        num_workers=config["num_workers"],
        seed=config["seed"],
        **config.get("options", {}),
    )


def sample_epochs(rank: Rank) -> dict[str, Any]:
    """Draw from the training loader as often as each of the judge's configurations says."""
    data = rank.student("data")
    given = rank.receive()
    return {
        "drawn": [sample_config(rank, data, config) for config in given["configs"]],
        "refused": [attempt_loaders(rank, data, config) for config in given["refused"]],
    }


def sample_config(rank: Rank, data: Any, config: dict[str, Any]) -> dict[str, Any]:
    made = attempt(rank, make_loaders, data, config)
    loaders = made["value"]
    report: dict[str, Any] = {
        "error": made["error"], "set_epoch": False, "num_workers": [], "epochs": [], "options": [],
        "sampler_seed": -1, "valid_batch": -1, "valid_shuffled": False,
    }  # fmt: skip
    if not isinstance(loaders, tuple | list) or len(loaders) != 2:
        return {"returned": describe_type(loaders), **report}
    loader, valid = loaders
    set_epoch = find_set_epoch(loader)
    epochs = []
    workers = [int(getattr(one, "num_workers", 0)) for one in loaders]
    for epoch in config["epochs"] if workers[0] == 0 else []:
        if set_epoch is not None:
            set_epoch(epoch)
        epochs.append([number_images(batch) for batch in loader])
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
    }


def attempt_loaders(rank: Rank, data: Any, config: dict[str, Any]) -> dict[str, Any]:
    return {"error": attempt(rank, make_loaders, data, config)["error"]}


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
    """Every batch of the validation loader, for each of the judge's configurations."""
    data = rank.student("data")
    given = rank.receive()
    if not_started := attempt_shard(data, rank):
        raise not_started
    reports: list[dict[str, Any]] = []
    for config in given["configs"]:
        valid = NumberedImages(config["valid"], first=1000, in_memory=True)
        loaders = make_loaders(data, config, valid)
        two = isinstance(loaders, tuple | list) and len(loaders) == 2
        returned, loader = ("two", loaders[1]) if two else (describe_type(loaders), [])
        shard = describe_shard(data, loader)
        batches = [] if shard == [rank.world_size, rank.rank] else list(loader)  # swapped: division by zero
        if any(number_images(batch) == [-1] for batch in batches):
            returned, batches = "a loader whose batches are not (images, labels)", []
        alike = len({batch[0].shape[1:] for batch in batches}) == 1
        reports.append(
            {
                "returned": returned,
                "sizes": [len(batch[1]) for batch in batches],
                "images": torch.cat([batch[0] for batch in batches]) if alike else None,
                "labels": [int(label) for batch in batches for label in batch[1].flatten()],
                "shapes": [[list(part.shape[1:]) for part in batch] for batch in batches],
                "types": sorted({dtype(batch[1]) for batch in batches}),
                "overwritten": valid.overwritten(),
                "shard": shard,
                "drop_last": bool(getattr(loader, "drop_last", False)),
            }
        )
    return reports


def describe_shard(data: Any, loader: Any) -> list[int]:
    """Rank and world size of the ValidationShard that a loader reads; [] where it reads none, or an odd one."""
    shard = getattr(loader, "dataset", None)
    if not isinstance(shard, getattr(data, "ValidationShard", ())):
        return []
    return [value for name in ("rank", "world_size") if isinstance(value := getattr(shard, name, None), int)]


def attempt_shard(data: Any, rank: Rank) -> NotImplementedError | None:
    """The error of ValidationShard's stub if it is still there: 3.3 is not started, whatever 3.2 is."""
    if not hasattr(data, "ValidationShard"):
        return None
    try:
        shard = data.ValidationShard(NumberedImages(torch.zeros(4, dtype=torch.int64)), rank.rank, rank.world_size)
        len(shard)
        shard[0]
    except NotImplementedError as error:
        return error
    except Exception:  # noqa: BLE001 - whatever else is wrong shows in what the loader yields
        return None
    return None
