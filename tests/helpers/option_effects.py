"""What an option of main.py does: tiny runs of the reference in one process, and what of them can be seen.

An option that was given must be seen in what the run did or recorded, or be named in a warning or a refusal.
"""

import argparse
import contextlib
import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from image_helpers import make_image_folder
from torch import nn

from lab.base.errors import UserError
from lab.runs.options import build_parser
from lab.training.checkpoints import checkpoint_file
from lab.training.stepping.signals import Preempted

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
BASE = ("--strategy", "none", "--epochs", "2", "--global-batch-size", "16", "--no-tensorboard")
BASE_OPTIONS = {"--strategy", "--epochs", "--global-batch-size", "--tensorboard"}
SO_ANYWAY = (  # what asks for what is so without it
    *(("--strategy", "none"), ("--no-augment",), ("--no-pin-memory",), ("--no-tensorboard",)),
    *(("--precision", "fp32"), ("--no-amp",), ("--shard", "full")),
)
MATTERS_AFTER = {  # and yet something is asked for where these were given before
    ("--no-amp",): ("--precision", "bf16"),
    ("--no-augment",): ("--randaugment",),
    ("--shard", "full"): ("--strategy", "fsdp"),
}
ELSEWHERE = {"--compile"}  # tested in test_compile.py: a compiler takes minutes for each run
SEEN_COLUMNS = (  # of run.csv's last row: not those that only repeat the command line
    *("strategy", "model", "dataset", "precision", "scaling", "repeat", "epochs", "global_batch", "per_gpu_batch"),
    *("input", "bucket_cap_mb", "measured_steps", "steps_per_epoch", "val_top1", "best_top1"),
)
OWN = """
import torch
from torch import nn
from lab.training import DataSets

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.AdaptiveAvgPool2d(1))])
        self.head = nn.Linear(4, num_classes)

    def forward(self, images):
        return self.head(self.blocks[0](images).flatten(1))

def load(data_dir):
    generator = torch.Generator().manual_seed(len(str(data_dir)))
    samples = [(torch.randn(3, 32, 32, generator=generator), i % 2) for i in range(48)]
    return DataSets(samples, samples[:16], None, ("a", "b"))
"""


def values(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """For each option the ways in which it is tried. Flags and choices are found in the parser."""
    data = make_image_folder(folder / "data", train={"a": 24, "b": 24}, test={"a": 8, "b": 8})
    given: dict[str, list[tuple[str, ...]]] = {
        "--model": [("vit", "--width", "64", "--depth", "1"), ("mine:Net",)],
        "--dataset": [("imagefolder", "--data-dir", str(data)), ("mine:load",)],
        "--optimizer": [("adam",)],
        "--data-dir": [(str(data),)],
        "--image-size": [("64",)],
        "--shard-ranks": [("2",)],
        "--width": [("64",)],
        "--depth": [("1",)],
        "--num-workers": [("1",)],
        "--prefetch": [("3",)],
        "--global-batch-size": [("8",)],
        "--per-device-batch-size": [("4",)],  # 8 is what --accumulate 2 makes of the 16
        "--accumulate": [("2",)],
        "--epochs": [("1",)],
        "--measure-steps": [("2",)],
        "--measure-warmup": [("2",)],
        "--base-lr": [("0.5",)],
        "--warmup-epochs": [("1",), ("0.01",)],
        "--momentum": [("0.5",)],
        "--weight-decay": [("0.1",)],
        "--clip-norm": [("0.01",)],
        "--seed": [("1",)],
        "--bucket-cap-mb": [("0.01",)],
        "--resume": [("auto", "--run-id", "again"), ("latest",)],
        "--save-every-steps": [("3",), ("1000",)],
        "--save-frequency": [("1",), ("10",)],
        "--output-dir": [(str(folder / "elsewhere"),)],
        "--print-every": [("2",), ("1000",)],
        "--run-id": [("named",)],
        "--repeat": [("2",)],
    }
    found: dict[str, list[tuple[str, ...]]] = {}
    for action in build_parser()._actions:
        option = action.option_strings[0]
        if option in ELSEWHERE or isinstance(action, argparse._HelpAction):
            continue
        if option in given:
            found[option] = [(option, *value) for value in given[option]]
        elif action.nargs == 0:
            found[option] = [(one,) for one in action.option_strings]
        elif action.choices is not None:
            found[option] = [(option, str(choice)) for choice in action.choices if choice != action.default]
        else:
            raise AssertionError(f"tests/helpers/option_effects.py: say in values() how {option} is tried")
    return found


class Runs:
    """Tiny runs, each at most once.

    Args:
        folder: where they may write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[tuple[str, ...], Any] = {}
        (folder / "code").mkdir()
        (folder / "code" / "mine.py").write_text(OWN)
        self._path = list(sys.path)
        sys.path[:0] = [str(folder / "code"), str(SOLUTIONS)]
        import main

        self.main = main
        main.setup, main.cleanup = lambda: torch.device("cpu"), lambda: None
        from lab.training.data import shapes

        self._images = shapes.TRAIN_IMAGES, shapes.VALID_IMAGES
        shapes.TRAIN_IMAGES, shapes.VALID_IMAGES = 48, 16

    def close(self) -> None:
        """Leave the process as it was: other tests go on in it."""
        from lab.training.data import shapes

        shapes.TRAIN_IMAGES, shapes.VALID_IMAGES = self._images
        sys.path[:] = self._path
        for name in ("main", "data", "ddp_utils", "distributed_utils", "fsdp_utils", "model", "train", "mine"):
            sys.modules.pop(name, None)

    def silent(self, before: tuple[str, ...], option: tuple[str, ...]) -> bool:
        """Whether `option`, added to `before`, neither does anything nor is named."""
        without, given = self.run(*before), self.run(*before, *option)
        names = {word for word in option if word.startswith("--")}
        names |= {name.replace("--no-", "--") for name in names} | {"--no-" + name[2:] for name in names}
        if any(name in given["said"] for name in names):
            return False
        return given["seen"] == without["seen"] and not given["refused"]

    def run(self, *argv: str) -> dict[str, Any]:
        if argv not in self._known:
            self._known[argv] = self._run(argv)
        return self._known[argv]

    def _run(self, argv: tuple[str, ...]) -> dict[str, Any]:
        number = len(self._known)
        place = self.folder / f"run{number}"
        base = list(BASE)
        if "--per-device-batch-size" in argv:
            del base[4:6]
        if "--measure-steps" in argv:
            del base[2:4]
        given = [*base, *([] if "--output-dir" in argv else ["--output-dir", str(place)]), *argv]
        output, seen, refused = io.StringIO(), {}, False
        deterministic = torch.are_deterministic_algorithms_enabled()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                args = self.main.parse_args(given)
                with self._watched(seen):
                    self.main.run(args)
            except Preempted as stopped:  # by whoever stops the tests: no more runs, the process group is left
                raise KeyboardInterrupt(str(stopped)) from stopped
            except (UserError, SystemExit) as error:
                refused = True
                print(error)
        torch.use_deterministic_algorithms(deterministic)
        lines = output.getvalue().splitlines()
        # The start report repeats options; only warnings, refusals and usage errors are a word about them.
        said = [line for line in lines if line.startswith("warning: ")] + (lines if refused else [])
        if not refused:
            seen |= self._records(Path(args.output_dir), moved=args.output_dir != place)
            seen["lines"] = sum(line.startswith("epoch ") for line in lines)
            seen["times"] = any(line.startswith("start-up, seconds") for line in lines)
            seen["stopped early"] = any("dry run: everything is set up" in line for line in lines)
        return {"said": "\n".join(said), "seen": seen, "refused": refused}

    @contextlib.contextmanager
    def _watched(self, seen: dict[str, Any]) -> Iterator[None]:
        """Look at what the run is given, and at the weights it ends with."""
        began, write = self.main.Run.begin, checkpoint_file.write
        seen["saved"] = 0

        def count(state: dict[str, Any], path: Path) -> None:
            seen["saved"] += 1
            write(state, path)

        checkpoint_file.write = count

        def begin(run: Any, model: nn.Module, optimizer: Any, loader: Any) -> None:
            began(run, model, optimizer, loader)
            images, _ = next(iter(loader.dataset)) if isinstance(loader.dataset, list) else loader.dataset[0]
            seen.update(
                loader=[loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.pin_memory],
                image=tuple(images.shape),
                optimizer=type(optimizer).__name__,
                deterministic=torch.are_deterministic_algorithms_enabled(),
                bucket=getattr(model, "bucket_bytes_cap", None),
                checkpointed=is_checkpointed(getattr(model, "module", model)),
            )
            self.model = model

        self.main.Run.begin = begin
        try:
            yield
        finally:
            self.main.Run.begin, checkpoint_file.write = began, write
        seen["weights"] = [
            float(getattr(p, "full_tensor", lambda p=p: p)().detach().double().sum())
            for p in self.model.parameters()
        ]

    def _records(self, results: Path, *, moved: bool) -> dict[str, Any]:
        folders = (
            [path for path in results.iterdir() if (path / "status.json").exists()] if results.exists() else []
        )
        if not folders:
            return {"records": None}
        folder = max(folders, key=lambda path: path.stat().st_mtime_ns)
        files = {path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
        with (folder / "run.csv").open(newline="") as file:
            row = list(csv.DictReader(file))[-1]
        config = json.loads((folder / "config.json").read_text())
        return {
            "records": {name: row[name] for name in SEEN_COLUMNS},
            "files": {"/".join(parts) if parts[0] != "tensorboard" else "tensorboard" for parts in files},
            "named": folder.name if folder.name in ("named", "again") else "",
            "moved": moved,
            "label": config["steps_per_epoch"],
        }


def is_checkpointed(model: nn.Module) -> bool:
    """Whether the first block computes its activations twice; FSDP1 has put a module of its own around it."""
    block = getattr(model, "blocks", [model])[0]
    return "forward" in getattr(block, "module", block).__dict__


def alone(tried: dict[str, list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    return [one for ways in tried.values() for one in ways if one not in SO_ANYWAY]


def in_pairs(tried: dict[str, list[tuple[str, ...]]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(given before, added): both orders, of two options that are not the same.

    After --dry-run nothing is: what an option of training would do cannot be seen there. Nor is what is so without
    it, but for MATTERS_AFTER.
    """
    singles = [(option, one) for option, ways in tried.items() for one in ways]
    return [
        (a, b)
        for (x, a), (y, b) in itertools.permutations(singles, 2)
        if x != y and not (set(a[:1]) & set(b) or set(b) <= set(a) or a == ("--dry-run",))
        if b not in SO_ANYWAY or MATTERS_AFTER.get(b) == a
    ]
