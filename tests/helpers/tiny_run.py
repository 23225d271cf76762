"""A run of main.py in small, for the tests of stepping, checkpoints and resuming: observe halves for rank groups.

The model has dropout and the images get noise from the process's own random numbers, so that a run which goes on
with other random numbers gives other losses.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.utils.data import Dataset

from lab.base.errors import UserError
from lab.ranks.rank import Rank
from lab.runs import options
from lab.runs.records.epoch_record import EpochRecord
from lab.runs.records.progress import Progress
from lab.training.data.datasets import DataSets
from lab.training.run import Run
from lab.training.stepping.signals import Preempted
from lab.training.watching.watcher import StepReport, Watcher

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
CLASSES = 4
BATCH = ("--global-batch-size", "8")


class TinyNet(nn.Module):
    """Images [B, 3, 8, 8] -> logits [B, 4]."""

    def __init__(self, *, width: int = 6, dropout: float = 0.2, norm: bool = False) -> None:
        super().__init__()
        norms = [nn.BatchNorm2d(width)] if norm else []
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), *norms, nn.ReLU()),
                nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(), nn.Dropout(dropout)),
            ]
        )
        self.classifier = nn.Linear(width * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.flatten(start_dim=1))


class Images(Dataset):
    """Random images [3, 8, 8] whose label can be learned; with noise that is drawn anew each time."""

    def __init__(
        self, count: int, *, noise: float = 0.1, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (count,), generator=generator)
        self.images = torch.randn(count, 3, 8, 8, generator=generator, dtype=dtype)
        self.images += self.labels[:, None, None, None] - 1.5
        self.noise = noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        return image + self.noise * torch.randn(image.shape).to(image.dtype), int(self.labels[index])


class Stop(Exception):
    """Ends a run from within, as a crash would."""


class StopAt(Watcher):
    def __init__(self, epoch: int, step: int) -> None:
        self.at = (epoch, step)

    def step(self, report: StepReport) -> None:
        if (report.epoch, report.step) == self.at:
            raise Stop


class SignalAt(Watcher):
    """A signal after this step; step 0 means after the epoch's evaluation."""

    def __init__(self, epoch: int, step: int, number: int) -> None:
        self.at, self.number = (epoch, step), number

    def step(self, report: StepReport) -> None:
        if (report.epoch, report.step) == self.at:
            os.kill(os.getpid(), self.number)

    def epoch(self, record: EpochRecord) -> None:
        if (record.epoch, 0) == self.at:
            os.kill(os.getpid(), self.number)


class KillAfter(Watcher):
    """SIGKILL from another process some seconds after so many steps, whatever goes on then."""

    def __init__(self, seconds: float, steps: int) -> None:
        self.seconds, self.steps = seconds, steps

    def begin(self, progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._count_down()

    def step(self, report: StepReport) -> None:
        self.steps -= 1
        self._count_down()

    def _count_down(self) -> None:
        me = os.getpid()
        if self.steps == 0 and os.fork() == 0:
            time.sleep(self.seconds)
            os.kill(me, signal.SIGKILL)
            os._exit(0)


class NoteSteps(Watcher):
    """Appends a line to a file after each step; what is written there was saved before."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def step(self, report: StepReport) -> None:
        os.write(self.file, f"{report.total_step}\n".encode())


def train(rank: Rank) -> dict[str, Any]:
    """Train as the inputs say and return what came of it.

    Inputs: argv; images (32); valid_images (10); workers (0); net: TinyNet's keywords; noise (0.1); stop, signal
    and kill: see the watchers; note: a file for NoteSteps; double: compute in float64; bad_image: index of an
    image that is nan; device (cpu); channels_last: the weights' order in memory; signal_now: before an evaluation;
    old_main: one that does not know --evaluate-only; one_mesh: the wrapping knows nothing of --shard hybrid.
    """
    code = {name: rank.student(name) for name in ("train", "data", "ddp_utils", "fsdp_utils")}
    inputs = rank.receive()
    args = options.parse([*BATCH, *inputs["argv"]])
    result: dict[str, Any] = {"ended": "done", "records": []}
    try:
        with Run(args, torch.device(inputs.get("device", "cpu"))) as run:
            result["records"] = _train(run, code, inputs, rank, result)
    except (UserError, Stop) as error:
        result["ended"] = f"{type(error).__name__}: {error}"
    except Preempted as error:
        result["ended"] = f"exit code {error.code}"
    return result


def _train(
    run: Run, code: dict[str, Any], inputs: dict[str, Any], rank: Rank, result: dict[str, Any]
) -> list[Any]:
    args, dtype = run.args, torch.float64 if inputs.get("double") else torch.float32
    noise = inputs.get("noise", 0.1)
    images = Images(inputs.get("images", 32), noise=noise, dtype=dtype)
    if "bad_image" in inputs:
        images.images[inputs["bad_image"]] = torch.nan
    train_loader, valid_loader = code["data"].get_dataloaders(
        images,
        Images(inputs.get("valid_images", 10), noise=0, seed=1, dtype=dtype),
        args.loader_batch_size,
        num_workers=inputs.get("workers", 0),
        seed=args.seed,
    )
    torch.manual_seed(args.seed)
    model: nn.Module = run.prepare_model(TinyNet(**inputs.get("net", {})).to(run.device, dtype))
    if inputs.get("channels_last"):
        model.to(memory_format=torch.channels_last)
    if args.strategy == "ddp":
        model = code["ddp_utils"].get_ddp_model(model, run.device, bucket_cap_mb=args.bucket_cap_mb)
    elif args.strategy == "fsdp":
        shards = {} if inputs.get("one_mesh") else options.shard_options(args)
        model = code["fsdp_utils"].get_fsdp_model(model, run.device, precision=args.precision, **shards)
    elif args.strategy == "fsdp1":
        model = code["fsdp_utils"].get_fsdp1_model(model, run.device, precision=args.precision)
    rate, decay = args.learning_rate, args.weight_decay
    if args.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=rate, momentum=args.momentum, weight_decay=decay
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    for key, kind in (("stop", StopAt), ("signal", SignalAt), ("kill", KillAfter)):
        if key in inputs and inputs.get("only", rank.rank) == rank.rank:
            run.watchers.append(kind(*inputs[key]))
    if "note" in inputs and rank.rank == 0:
        run.watchers.append(NoteSteps(inputs["note"]))
    run.begin(model, optimizer, train_loader)
    if args.evaluate_only and not inputs.get("old_main"):
        if "signal_now" in inputs:
            os.kill(os.getpid(), inputs["signal_now"])
        valid, test = (Images(inputs.get("valid_images", 10), noise=0, seed=seed, dtype=dtype) for seed in (1, 2))
        datasets = DataSets(images, valid, test, ("a", "b", "c $x", "d"))
        run.evaluate(
            model,
            datasets,
            lambda part: code["data"].get_dataloaders(images, part, args.loader_batch_size, seed=args.seed)[1],
        )
        return []
    if inputs.get("evaluate_first"):
        evaluation = code["train"].evaluate(model, valid_loader, run.device)
        result["evaluation"] = [evaluation.loss, evaluation.accuracy]
    records = code["train"].train(model, optimizer, train_loader, valid_loader, run)
    if args.strategy != "fsdp1":
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        result["weights"] = get_model_state_dict(model, options=whole)
    return [[one.epoch, one.train_loss, one.train_accuracy, one.valid_loss, one.valid_accuracy] for one in records]
