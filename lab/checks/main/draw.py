"""The command lines with which main.py is rehearsed, and what must come of each."""

import argparse
import random
from dataclasses import dataclass, replace
from typing import Any

from lab.runs import options


@dataclass
class Rehearsal:
    """One command line, drawn anew for each run, and what must come of it.

    evaluate_only  only evaluate; a main.py of a package from before this option trains
    fails       train() raises an error
    data_dir    None for a data set that needs none
    test_set    whether the data set has test images besides those for validation
    more        further options
    """

    strategy: str
    world_size: int
    seed: int
    classes: list[str]
    model: str = "cnn"
    dry_run: bool = False
    evaluate_only: bool = False
    fails: bool = False
    per_device: bool = False
    accumulate: int = 1
    optimizer: str = "sgd"
    precision: str = "fp32"
    data_dir: str | None = "images"
    test_set: bool = False
    num_workers: int = 0
    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.local_batch = random.choice([2, 4, 6])  # divides by the world size: taken for the global one, it fits
        self.loader_batch = self.local_batch * self.world_size
        self.global_batch = self.loader_batch * self.accumulate
        self.base_lr = random.randrange(1, 40) / 100
        self.momentum = random.randrange(1, 9) / 10
        self.weight_decay = random.randrange(1, 90) / 1e4
        self.bucket_mb = random.randrange(2, 20) + 0.5  # it need not be a whole number
        self.output_dir = f"out{random.randrange(100)}"
        self.test = [random.randrange(1, 1000) / 1000 for _ in range(2)]  # loss and accuracy
        self.learning_rate = self.base_lr * (self.global_batch / 256 if self.optimizer == "sgd" else 1)
        self.validation = "split" if self.test_set or self.data_dir is None else "test"

    @property
    def argv(self) -> list[str]:
        given: dict[str, object] = {
            "--strategy": self.strategy,
            "--model": self.model,
            "--optimizer": self.optimizer,
            "--precision": self.precision,
            "--seed": self.seed,
            "--base-lr": self.base_lr,
            "--weight-decay": self.weight_decay,
            "--num-workers": self.num_workers,
            "--dataset": self.dataset,
            "--validation": self.validation,
            "--output-dir": self.output_dir,
            "--accumulate": self.accumulate,
        }
        if self.data_dir is not None:
            given["--data-dir"] = self.data_dir
        if self.per_device:
            given["--per-device-batch-size"] = self.local_batch
        else:
            given["--global-batch-size"] = self.global_batch
        if self.optimizer == "sgd":
            given["--momentum"] = self.momentum
        if self.strategy == "ddp":
            given["--bucket-cap-mb"] = self.bucket_mb
        pairs = [str(part) for pair in given.items() for part in pair]
        return [*pairs, *self.more, *["--dry-run"] * self.dry_run]

    @property
    def dataset(self) -> str:
        return "shapes" if self.data_dir is None else "imagefolder"

    @property
    def resolved(self) -> argparse.Namespace:
        args = options.resolve(options.parse(self.argv), self.world_size)[0]
        args.evaluate_only = self.evaluate_only
        return args

    @property
    def inputs(self) -> dict[str, Any]:
        return {
            "argv": self.argv,
            "model": self.model,
            "noise": random.randrange(2**30),
            "meta_device": self.strategy == "none",
            "samples": 3 * self.global_batch + 1,
            "classes": self.classes,
            "first": [self.world_size - 1],
            "test_set": self.test_set,
            "test": self.test,
            "evaluate_only": self.evaluate_only,
            "fails": self.fails,
        }

    def failing(self) -> "Rehearsal":
        """The same, but train() raises an error."""
        return replace(self, fails=True)

    def __str__(self) -> str:
        more = " --dry-run" * self.dry_run + " --evaluate-only" * self.evaluate_only
        return f"--strategy {self.strategy}{more}"


def draw_rehearsals() -> list[Rehearsal]:
    """One for each strategy, and DDP on a single rank. Each option is given in one of them at least.

    Some with one seed, some with seed 0: a seed that is cut down or taken modulo something is the same for both.
    """
    seed = 126_000 * random.randrange(1, 9)  # 0 modulo 2, 3, ... and 10, 100 and 1000
    classes = [f"class {number}" for number in range(random.randrange(3, 9))]
    workers = ("--persistent-workers", "--prefetch", str(random.randrange(3, 9)))
    vit = ("--width", "64", "--depth", "1")
    return [
        Rehearsal(
            "ddp", 2, seed, classes, per_device=True, accumulate=2, test_set=True,
            num_workers=random.randrange(1, 3), more=workers,
        ),
        Rehearsal("fsdp", 2, seed, classes, optimizer="adam", precision="bf16", more=("--randaugment",)),
        Rehearsal("fsdp1", 2, 0, classes, model="vit", dry_run=True, precision="bf16", test_set=True, more=vit),
        Rehearsal("none", 1, 0, classes, optimizer="adamw", data_dir=None, test_set=True),
        Rehearsal(
            "ddp", 1, seed, classes, evaluate_only=True, test_set=True,
            num_workers=random.randrange(1, 3), more=workers,
        ),
    ]  # fmt: skip
