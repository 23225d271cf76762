"""What the judge asks of get_dataloaders, drawn anew for each run."""

import random
import secrets
from collections.abc import Sequence
from typing import Any

import torch

Epoch = list[list[int]]  # one rank's batches of sample numbers


class DrawnLoaders:
    """What the judge asks of get_dataloaders on this many ranks, drawn anew for each run.

    Attributes:
        configs: "plain" draws several epochs and epoch 1 again, "again" the same, "other seed" and "seed N"
            others; "far seed" differs from "plain" in the higher bits and is the same modulo 1000; the samples of
            "short" would fill the last batch if one were drawn twice; "many" draws so many epochs of them that
            chance leaves none out of all; "whole" is a single batch; "workers" and "options" are not drawn from.
            For "again" and what is refused each rank is on a node of its own, with one GPU. The validation set of
            "plain" fills all batches but one, that of "again" has a single sample.
        likely_seeds: what a seed of 0 might be replaced by.
        options: **loader_options of "options", and by the names of configurations the others: each option with
            another value, and the same where the student's code sees a GPU.
        refused: configurations that must raise ValueError.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.batch = random.randrange(3, 6)
        self.first = random.randrange(2000, 1_000_000)  # number of the first sample: nobody can know it beforehand
        self.global_batch = world_size * self.batch
        self.seed, self.other_seed = random.sample(range(10_000), 2)
        size = 4 * self.global_batch + random.randrange(world_size, self.global_batch - 1)
        short = 4 * self.global_batch - 1
        self.likely_seeds = (1, 42, 123, 1234)
        self.workers = random.randrange(3, 7)
        self.options: dict[str, Any] = {
            "prefetch_factor": random.randrange(3, 9), "persistent_workers": True, "pin_memory": False,
            "timeout": random.randrange(5, 60),
        }  # fmt: skip
        opposite = {"prefetch_factor": 2, "persistent_workers": False, "pin_memory": True, "timeout": 0}
        self.all_options = {
            "options": self.options, "options with a GPU": self.options, "other options": opposite,
        }  # fmt: skip
        self.far_seed = self.seed + 125 * 2**16  # a multiple of 1000
        seeds = (0, *self.likely_seeds)
        self.names = ["plain", "again", "other seed", "far seed", "short", "whole"]
        self.names += [*(f"seed {seed}" for seed in seeds), "many", "workers", *self.all_options]
        self.configs = [
            self.config(size, self.seed, epochs=[1, 2, 3, 2521, 1])  # 2521 is 1 modulo 2, 3, ... and 10
            | {"valid": torch.arange(2 * self.global_batch + 1) % 10},
            self.config(size, self.seed, epochs=[1]) | {"valid": torch.arange(1), "sees_gpu": True},
            self.config(size, self.other_seed, epochs=[1]),
            self.config(size, self.far_seed, epochs=[1]),
            self.config(short, self.seed, epochs=[1]),
            self.config(self.global_batch, self.seed, epochs=[1]),
            *(self.config(size, seed, epochs=[1, 2]) for seed in seeds),
            self.config(short, self.seed, epochs=range(1, 16)),
            self.config(size, self.seed, num_workers=self.workers),
            *(
                self.config(size, self.seed, num_workers=self.workers)
                | {"options": options, "sees_gpu": name != "options"}
                for name, options in self.all_options.items()
            ),
        ]
        self.refused = [
            self.config(size, self.seed) | {"global_batch_size": self.global_batch + 1, "sees_gpu": True},
            self.config(self.global_batch - 1, self.seed) | {"sees_gpu": True},
            self.config(self.global_batch - world_size, self.seed),  # so many would divide
        ]

    @property
    def alone(self) -> dict[str, Any]:
        """What a single rank is asked for: two epochs, nothing that must be refused."""
        return {"configs": [self.configs[0] | {"epochs": [1, 2]}], "refused": []}

    def config(self, size: int, seed: int, *, epochs: Sequence[int] = (), num_workers: int = 0) -> dict[str, Any]:
        return {
            "train": torch.arange(size) % 10,
            "valid": torch.arange(7) % 10,
            "global_batch_size": self.global_batch,
            "num_workers": num_workers,
            "seed": seed,
            "first": self.first,
            "epochs": list(epochs),
        }


def draw_validation_sets(world_size: int, shape: tuple[int, ...] = (3, 32, 32)) -> list[dict[str, Any]]:
    """With samples that fill all batches but one, all but the last, all of one; and with a single sample.

    No label is 0, nor a number that a shard knows: filler with such a label would be taken for a sample by luck.
    """
    batch = random.randrange(2, 5)
    sizes = [2 * world_size * batch + 1, world_size * batch - 1, world_size * batch, 1]
    return [
        {
            "valid": torch.tensor(
                random.choices(sorted({*range(2, 9)} - {size - 1, size, world_size, batch}), k=size)
            ),
            "batch": batch,
            "shape": shape,
        }
        for size in sizes
    ]


def draw_gpu() -> dict[str, Any]:
    """A rank on the second of two machines with as many GPUs each: its number is not that of its GPU."""
    gpus = random.randrange(2, 5)
    gpu = random.randrange(gpus)
    numbers = {"RANK": gpus + gpu, "WORLD_SIZE": 2 * gpus, "LOCAL_RANK": gpu, "LOCAL_WORLD_SIZE": gpus}
    return {
        "rank": gpus + gpu,
        "world_size": 2 * gpus,
        "gpu": gpu,
        "gpus": gpus,
        "environ": {name: str(number) for name, number in numbers.items()},
        "message": f"cannot read the data set {secrets.token_hex(4)}",
    }


def draw_worlds() -> list[dict[str, Any]]:
    """For shards made outside of any loader, as by the ranks of other worlds: of a single one, and of many.

    The last two have images of different sizes. Reading the sample `damaged` raises `error` with `message`.
    """
    ranks = random.randrange(5, 8)
    worlds = [(1, random.randrange(3, 9), (3, 32, 32))]
    worlds += [(ranks, 4 * ranks + random.randrange(1, ranks), shape) for shape in ((3, 32, 32), (1, 8, 12))]
    return [
        {
            "world_size": world_size,
            "samples": samples,
            "shape": shape,
            "damaged": random.randrange(1, samples - 1),
            "error": random.choice(["OSError", "ValueError", "RuntimeError"]),
            "message": f"cannot identify image file {secrets.token_hex(4)}",
        }
        for world_size, samples, shape in worlds
    ]
