"""The command lines with which main.py is rehearsed, and what must come of each."""

import random
from dataclasses import dataclass
from typing import Any


@dataclass
class Rehearsal:
    """One command line, drawn anew for each run, and what must come of it."""

    strategy: str
    world_size: int
    seed: int
    classes: list[str]
    dry_run: bool = False
    per_device: bool = False
    optimizer: str = "sgd"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        self.local_batch = random.choice([2, 4, 6])  # divides by the world size: taken for the global one, it fits
        self.global_batch = self.local_batch * self.world_size
        self.base_lr = random.randrange(1, 40) / 100
        self.momentum = random.randrange(1, 9) / 10
        self.bucket_mb = random.randrange(2, 20)
        self.num_workers = random.randrange(1, 3)
        self.learning_rate = self.base_lr * (self.global_batch / 256 if self.optimizer == "sgd" else 1)

    @property
    def argv(self) -> list[str]:
        options = {
            "--strategy": self.strategy,
            "--optimizer": self.optimizer,
            "--precision": self.precision,
            "--seed": self.seed,
            "--base-lr": self.base_lr,
            "--num-workers": self.num_workers,
            "--dataset": "imagefolder",
            "--data-dir": "images",
            "--validation": "test",
        }
        if self.per_device:
            options["--per-device-batch-size"] = self.local_batch
        else:
            options["--global-batch-size"] = self.global_batch
        if self.optimizer == "sgd":
            options["--momentum"] = self.momentum
        if self.strategy == "ddp":
            options["--bucket-cap-mb"] = self.bucket_mb
        return [str(part) for pair in options.items() for part in pair] + ["--dry-run"] * self.dry_run

    @property
    def inputs(self) -> dict[str, Any]:
        return {
            "argv": self.argv,
            "noise": random.randrange(2**30),
            "meta_device": self.strategy == "none",
            "samples": 3 * self.global_batch + 1,
            "classes": self.classes,
            "first": [self.world_size - 1],
        }

    def __str__(self) -> str:
        return f"--strategy {self.strategy}" + " --dry-run" * self.dry_run


def draw_rehearsals() -> list[Rehearsal]:
    """One for each strategy: the first two with the same seed, the last two with another."""
    seed, other_seed = random.sample(range(1, 10_000), 2)
    classes = [f"class {number}" for number in range(random.randrange(3, 9))]
    return [
        Rehearsal("ddp", 2, seed, classes, per_device=True),
        Rehearsal("fsdp", 2, seed, classes, optimizer="adam", precision="bf16"),
        Rehearsal("fsdp1", 2, other_seed, classes, dry_run=True),
        Rehearsal("none", 1, other_seed, classes),
    ]
