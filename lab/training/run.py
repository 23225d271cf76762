"""One training run: what train.py and main.py need beyond the exercises.

A Run knows the device and the ranks, gives the forward pass its precision, moves and times the batches, and
writes the records. The exercises see only its few methods, so that they stay short when runs learn more.
"""

import argparse
import contextlib
import resource
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lab.training import options
from lab.training.augment import set_epoch
from lab.training.errors import UserError
from lab.training.networks.checkpointing import checkpoint_activations
from lab.training.records import RunFolder, git_commit, job_id
from lab.training.unheeded import unheeded

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True)
class EpochRecord:
    """An epoch's figures over all ranks."""

    epoch: int  # counted from 1
    train_loss: float
    valid_loss: float
    valid_accuracy: float  # a fraction
    train_accuracy: float  # a fraction; measured while the weights changed
    seconds: float  # of the training pass, on the slowest rank
    images_per_second: float  # of the training pass, over all ranks
    peak_memory: int  # bytes on the fullest rank: allocated on CUDA, resident on the CPU


class Run:
    """The run that a command line asks for.

    Args:
        args: what options.parse returned.
        device: this rank's device.
        records: False keeps it silent and writes no files, as for a dry run.

    Raises:
        UsageError: the options do not fit each other or the number of ranks.

    A context manager: leaving it closes the records as done, or as failed with the reason.
    """

    def __init__(self, args: argparse.Namespace, device: torch.device, *, records: bool = True) -> None:
        self.device = device
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.args, self._warnings = options.resolve(args, self.world_size)
        self.hosts = _gather_hosts()
        # Of the epoch going on, on this rank: images and right answers while training, seconds of the training
        # pass, images while evaluating, and when the training pass ended.
        self._images = self._correct = self._seconds = self._evaluated = self._trained_at = 0.0
        self._correct_on_device = torch.zeros((), device=device, dtype=torch.int64)
        self._labels: Tensor | None = None  # of the batch going on
        self._loss: Tensor | None = None  # the last one that backward() saw
        self._last: EpochRecord | None = None
        self._epoch = 0
        self._talks = records and self.rank == 0
        self._commit = git_commit(Path(__file__).parent) if self._talks else ""
        self.folder: RunFolder | None = None
        if records and not args.dry_run:
            self.folder = self._open_folder()

    def _open_folder(self) -> RunFolder | None:
        """Rank 0 opens the folder; all ranks learn if it could not."""
        folder: RunFolder | None = None
        problem: list[UserError | None] = [None]
        if self.rank == 0:
            default = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.args.strategy}-{self.args.model}-w{self.world_size}"
            try:
                folder = RunFolder(self.args.output_dir, self.args.run_id or default)
            except UserError as error:
                problem = [error]
        dist.broadcast_object_list(problem, src=0)
        if problem[0] is not None:
            raise problem[0]
        return folder

    # ---- what main.py calls

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder is None:
            return
        if error is None:
            self.folder.close("done", "", self._row(self._last))
        else:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            details = "".join(traceback.format_exception(kind, error, trace))
            self.folder.close("failed", reason, self._row(self._last), details)

    def begin(self, model: nn.Module, optimizer: Optimizer, train_loader: DataLoader) -> None:
        """Report what is about to run, and start to follow the training accuracy.

        Args:
            model: wrapped, on its device.
            optimizer: of the wrapped model.
            train_loader: its data set and its length tell how many samples an epoch drops.
        """
        model.register_forward_hook(self._look_at_forward)
        args, steps = self.args, len(train_loader)
        if args.checkpoint_activations:
            checkpoint_activations(model)
        self._warnings += unheeded(args, self.device.type, model, train_loader)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        dropped = len(train_loader.dataset) - steps * args.global_batch_size  # type: ignore[arg-type]
        if self.folder is not None:
            self.folder.write_config(
                {
                    **options.as_record(args),
                    "world_size": self.world_size,
                    "nodes": len(set(self.hosts)),
                    "hosts": self.hosts,
                    "backend": dist.get_backend(),
                    "device": self.device_name,
                    "dropped_samples": dropped,
                    "steps_per_epoch": steps,
                    "parameters": parameters,
                    "torch": torch.__version__,
                }
            )
        for warning in self._warnings:
            self.print(f"warning: {warning}")
        self.print(self._description(parameters, steps, dropped))
        if args.dry_run:
            self.print("  dry run: everything is set up; stopping before training")

    def _description(self, parameters: int, steps: int, dropped: int) -> str:
        args, hosts = self.args, sorted(set(self.hosts))
        rate = f"learning rate {args.learning_rate:g}"
        if args.optimizer == "sgd":
            rate += f" = {args.base_lr:g} x {args.global_batch_size} / {options.REFERENCE_BATCH}"
            rate += f", momentum {args.momentum:g}"
        return "\n".join(
            [
                f"{args.strategy}: {args.model} ({parameters:,} parameters) on {args.dataset}, {args.precision}",
                f"  ranks      {self.world_size} on {len(hosts)} node{'s' * (len(hosts) > 1)} "
                f"({', '.join(hosts)}), backend {dist.get_backend()}, device {self.device_name}",
                f"  batch      {args.global_batch_size} in all, {args.per_device_batch_size} on each rank; "
                f"{steps} steps an epoch, {dropped} samples dropped",
                f"  optimizer  {args.optimizer}, {rate}, weight decay {args.weight_decay:g}",
            ]
        )

    @property
    def device_name(self) -> str:
        """The card's name, or "cpu"."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    def print(self, line: str) -> None:
        """Print on rank 0, and into train.log."""
        if self.folder is not None:
            self.folder.print(line)
        elif self._talks:
            print(line, flush=True)

    # ---- what train.py calls

    def epochs(self) -> Iterator[int]:
        """The epochs that are still to do, counted from 1."""
        for epoch in range(1, self.args.epochs + 1):
            self._epoch = epoch
            self._images = self._correct = self._seconds = self._evaluated = 0.0
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
            yield epoch

    def batches(self, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches on this rank's device; the time from the first to the last is measured."""
        set_epoch(loader.dataset, self._epoch)  # for the augmentation
        self._correct_on_device.zero_()
        steps = len(loader)
        start = time.perf_counter()
        for step, (images, labels) in enumerate(loader, start=1):
            self._labels = labels.to(self.device, non_blocking=True)
            yield images.to(self.device, non_blocking=True), self._labels
            self._images += len(labels)
            if step % self.args.print_every == 0 and step < steps:
                loss = "" if self._loss is None else f", loss {self._loss.item():.4f}"
                rate = self._images * self.world_size / (time.perf_counter() - start)
                self.print(
                    f"epoch {self._epoch}/{self.args.epochs}, step {step}/{steps}{loss}, {rate:.0f} images/s"
                )
        self._correct, self._labels = self._correct_on_device.item(), None  # .item() waits for the device
        self._trained_at = time.perf_counter()
        self._seconds += self._trained_at - start

    def _look_at_forward(self, model: nn.Module, inputs: object, logits: Tensor) -> None:
        """Forward hook: counts right answers while training, images while evaluating."""
        if not model.training:
            self._evaluated += len(logits)
        elif self._labels is not None:
            self._correct_on_device += (logits.detach().argmax(dim=1) == self._labels).sum()

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context for a forward pass. FSDP brings its own precision; else bf16 is torch.autocast."""
        if self.args.precision == "bf16" and not self.args.strategy.startswith("fsdp"):
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def backward(self, loss: Tensor) -> None:
        """loss.backward()."""
        self._loss = loss.detach()
        loss.backward()

    def record(self, epoch: int, train_loss: float, valid_loss: float, valid_accuracy: float) -> EpochRecord:
        """Print and store an epoch's figures. A collective call: every rank makes it.

        Args:
            epoch: counted from 1.
            train_loss, valid_loss: means over all ranks.
            valid_accuracy: a fraction.
        """
        evaluation = time.perf_counter() - self._trained_at
        seconds, evaluation, memory = self._over_ranks(
            [self._seconds, evaluation, self._peak_memory()], dist.ReduceOp.MAX
        )
        images, correct, evaluated = self._over_ranks(
            [self._images, self._correct, self._evaluated], dist.ReduceOp.SUM
        )
        if images == 0:
            self.print("warning: run.batches(loader) was not used: no time, images/s and training accuracy")
            images = correct = seconds = float("nan")
        record = EpochRecord(
            epoch=epoch,
            train_loss=train_loss,
            valid_loss=valid_loss,
            valid_accuracy=valid_accuracy,
            train_accuracy=correct / images,
            seconds=seconds,
            images_per_second=images / seconds,
            peak_memory=int(memory),
        )
        self._last = record
        self.print(
            f"[METRIC] epoch={epoch} time={seconds:.3f} train_loss={train_loss:.4f} val_loss={valid_loss:.4f} "
            f"acc={valid_accuracy:.4f} images_per_sec={record.images_per_second:.1f} peak_mem={memory / MIB:.0f}MB"
        )
        if self.folder is not None:
            self.folder.add_epoch(self._row(record))
            self.folder.add_metrics(epoch, "train", train_loss, record.train_accuracy, record.images_per_second)
            self.folder.add_metrics(epoch, "val", valid_loss, valid_accuracy, evaluated / evaluation)
        self._begin_evaluation()  # of the test images, after the last epoch
        return record

    def record_test(self, loss: float, accuracy: float) -> None:
        """Print and store how the trained model does on the test images. A collective call.

        Args:
            loss: the mean over all ranks.
            accuracy: a fraction.
        """
        (seconds,) = self._over_ranks([time.perf_counter() - self._trained_at], dist.ReduceOp.MAX)
        (images,) = self._over_ranks([self._evaluated], dist.ReduceOp.SUM)
        self.print(f"[METRIC] test_loss={loss:.4f} test_acc={accuracy:.4f}")
        if self.folder is not None:
            self.folder.add_metrics(self._epoch, "test", loss, accuracy, images / seconds)

    def _begin_evaluation(self) -> None:
        self._evaluated, self._trained_at = 0.0, time.perf_counter()

    def _over_ranks(self, values: list[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        reduced = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(reduced, op=operation)
        return reduced.tolist()

    # ---- records

    def _peak_memory(self) -> int:
        """Bytes: the most that CUDA allocated this epoch, or that this process ever held on the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def _row(self, record: EpochRecord | None) -> dict[str, object]:
        """A row of run.csv, as far as a single run can know it."""
        args, nodes = self.args, len(set(self.hosts))
        row: dict[str, object] = {
            "strategy": args.strategy,
            "model": args.model,
            "dataset": args.dataset,
            "precision": args.precision,
            "scaling": args.scaling or "",
            "repeat": args.repeat,
            "status": "running",
            "jobid": job_id(),
            "commit": self._commit,
            "epochs": args.epochs,
            "world_size": self.world_size,
            "nodes": nodes,
            "gpus_per_node": self.world_size // nodes if self.device.type == "cuda" else 0,
            "global_batch": args.global_batch_size,
            "per_gpu_batch": args.per_device_batch_size,
        }
        if record is not None:
            row |= {
                "epoch": record.epoch,
                "train_top1": record.train_accuracy,
                "val_top1": record.valid_accuracy,
                "images_per_sec": record.images_per_second,
                "time_epoch_s": record.seconds,
                "mem_gb": record.peak_memory / GIB,
            }
        return row


def _gather_hosts() -> list[str]:
    """The host name of every rank, in rank order."""
    hosts = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    return hosts
