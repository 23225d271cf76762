"""One training run: what train.py and main.py need beyond the exercises.

A Run knows device and ranks, moves and times the batches, steps the optimizer as the options ask, saves and
resumes, and writes the records. The exercises see only its few methods, and stay short when runs learn more: what
is behind them is in loop.py.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lab.base.allocator import keep_freed_memory
from lab.base.startup import reach
from lab.runs import options
from lab.runs.options.model import OWN_STRATEGIES
from lab.runs.records import provenance
from lab.runs.records.epoch_record import EpochRecord
from lab.runs.records.folder import RunFolder
from lab.runs.records.progress import Progress
from lab.training import own_strategy
from lab.training.checkpoints import resume
from lab.training.context import RunContext
from lab.training.data.about import about, check_own_images
from lab.training.data.datasets import DataSets
from lab.training.loop import BareLoop, Loop
from lab.training.metrics.work import WorkCounter
from lab.training.networks.checkpointing import checkpoint_activations
from lab.training.networks.sync_batchnorm import synchronise_batchnorm
from lab.training.stepping import precision, seeding
from lab.training.stepping.capture import Capture
from lab.training.stepping.compiling import Compiler
from lab.training.stepping.signals import Preempted, SignalWatch
from lab.training.stepping.together import from_rank_0, gather_hosts, leave_together, ranks_per_node
from lab.training.watching import tensorboard
from lab.training.watching.announce import Setup, count_parameters
from lab.training.watching.progress_bar import ProgressBar
from lab.training.watching.reporter import Reporter
from lab.training.watching.startup import StartupTimes
from lab.training.watching.watcher import Watcher

__all__ = ["EpochRecord", "Run"]


class Run:
    """The run that a command line asks for.

    Args:
        args: what options.parse returned.
        device: this rank's device.
        records: False keeps it silent: no files, no checkpoints, no signals, no collectives of its own.

    Raises:
        UsageError: the options do not fit each other or the number of ranks.
        UserError: the checkpoint to resume from is missing, damaged or of another model.

    A context manager: leaving it closes the records as done, as interrupted, or as failed with the reason.
    """

    def __init__(self, args: argparse.Namespace, device: torch.device, *, records: bool = True) -> None:
        reach("process group")
        allocator = keep_freed_memory() if device.type == "cpu" else ""
        self.device = device
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.hosts = gather_hosts()
        self.args, self._warnings = options.resolve(
            args,
            self.world_size,
            device=device.type,
            default_precision=precision.default_precision(device),
            ranks_per_node=ranks_per_node(self.hosts),
        )
        self.watchers: list[Watcher] = []
        self._keeps = records and not args.dry_run  # records and checkpoints, with an eye on signals and losses
        self._warnings += tensorboard.resolve(self.args) if self._keeps else []
        self.progress = Progress()
        self.capture = Capture(device) if self.args.capture else None
        self._channels_last = False
        self._own: nn.Module | None = None  # the model as a strategy of section 9 has wrapped it
        self._parameters = 0
        seeding.prepare(args.seed, deterministic=args.deterministic)
        resumed = resume.open_checkpoint(self.args)
        talks = records and self.rank == 0
        origin = provenance.columns(args, self.args, self.world_size, device, allocator) if talks else {}
        self._reporter = reporter = Reporter(self.args, self.hosts, device, origin, talks=talks)
        terminal = reporter.terminal if talks else None
        self.compiler = Compiler(self.args, device, reporter.print, terminal) if self.args.compile else None
        path = from_rank_0(partial(reporter.open_folder, resumed is not None)) if self._keeps else None
        if path is not None:
            self.watchers.append(ProgressBar(self.args, reporter.terminal, reporter.log, reporter.print))
            if args.startup_times:
                self.watchers.append(StartupTimes(device, reporter.print, captured=self.args.capture))
            if self.args.tensorboard:
                self.watchers.append(tensorboard.TensorBoard(path, device, self.progress, reporter.print))
        self._context = RunContext(
            self.args,
            device,
            self.progress,
            reporter,
            self.watchers,
            self.capture,
            self.compiler,
            SignalWatch(),
            resumed,
            WorkCounter(device, self.world_size, self.args.precision, reporter.print),
            path,
        )
        self._loop = BareLoop(self._context)
        reach("run folder")

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder: on rank 0 of a run that keeps records, else None."""
        return self._reporter.folder

    # ---- what main.py calls

    def __enter__(self) -> "Run":
        if self._keeps:
            self._context.signals.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        preempted = isinstance(error, Preempted)
        self._loop.close(failed=error is not None and not preempted)
        for watcher in self.watchers:
            watcher.close()
        self._reporter.close(error)
        if preempted:
            leave_together()
        self._context.signals.__exit__(kind, error, trace)

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """What the options ask of a new model before it is wrapped. Returns the model to go on with."""
        if self._keeps:
            self._context.work.keep(model)
        self._channels_last = precision.wants_channels_last(model, self.device, self.args.strategy)
        if self._channels_last and self.args.strategy != "fsdp":  # fully_shard takes contiguous parameters only
            model.to(memory_format=torch.channels_last)
        if self.args.sync_batchnorm:
            if self.world_size == 1:
                self._warnings.append("--sync-batchnorm has no effect on one rank")
            else:
                synchronise_batchnorm(model, self.args.model, self.device)
        if self.compiler is not None:
            if self.args.checkpoint_activations:  # inside of what is compiled
                checkpoint_activations(model, captured=self.args.capture, compiled=True)
            self.compiler.compile(model)
        if self.args.strategy in OWN_STRATEGIES:
            self._parameters = count_parameters(model)  # of which FSDP's ranks will have shards
            self._own = model = own_strategy.wrap(model.to(self.device), self.args)
        return model

    def begin(self, model: nn.Module, optimizer: Optimizer, train_loader: DataLoader) -> None:
        """Take over the optimizer's stepping, go on from a checkpoint if asked to, report what is about to run.

        Args:
            model: wrapped, on its device.
            optimizer: of the wrapped model. From here on its zero_grad() and step() are the run's.
            train_loader: its length and its data set tell the steps and the samples that an epoch drops.
        """
        reach("model")
        own_strategy.check_wrapped(model, self._own, self.args)
        progress, resumed = self.progress, self._context.resumed
        check_own_images(self.args, train_loader.dataset)
        known = about(train_loader.dataset)
        loop = Loop(self._context, model, optimizer, train_loader, channels_last=self._channels_last)
        self._loop = loop  # from here on __exit__ gives the optimizer back, also where begin() fails
        loop.begin()
        setup = Setup(
            self.args,
            self.device,
            self.hosts,
            self._parameters or count_parameters(model),
            loop.pass_steps,
            dropped_samples=len(train_loader.dataset) - loop.pass_steps * self.args.global_batch_size,  # type: ignore[arg-type]
            channels_last=self._channels_last,
            compiler=self.compiler,
            resumed=f"{resumed.path}, {progress.where}" if resumed else None,
            data=known.lines() if known else [],
            sharding=str(loop.sharding or ""),
            shard_columns=loop.sharding.columns if loop.sharding else {},
        )
        self._reporter.begin(setup, [*self._warnings, *loop.warnings], progress.epochs_done)
        for watcher in self.watchers:
            watcher.begin(progress, model, optimizer)

    def evaluate(self, model: nn.Module, datasets: DataSets, loader: Callable[[Any], DataLoader]) -> None:
        """With --evaluate-only, in the place of all training: how the checkpoint does, class by class. Collective.

        Args:
            model: wrapped, as begin() had it.
            loader: makes the loader of .valid's and of .test's images.
        """
        for phase, images in (("val", datasets.valid), ("test", datasets.test)):
            if images is not None:
                self._loop.evaluate(phase, loader(images), datasets.classes)

    def print(self, line: str) -> None:
        """Print on rank 0, and into train.log."""
        self._reporter.print(line)

    # ---- what train.py calls

    def epochs(self) -> Iterator[int]:
        """The epochs that are still to do, counted from 1."""
        return self._loop.epochs()

    def batches(self, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches on this rank's device; the time from the first to the last is measured."""
        return self._loop.batches(loader, self.device)

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context for a forward pass, in which layers compute in the run's precision."""
        return self._loop.autocast()

    def backward(self, loss: Tensor) -> None:
        """loss.backward(), scaled for fp16."""
        self._loop.backward(loss)

    def record(self, epoch: int, train_loss: float, valid_loss: float, valid_accuracy: float) -> EpochRecord:
        """Print and store an epoch's figures. A collective call: every rank makes it.

        Args:
            epoch: counted from 1.
            train_loss, valid_loss: means over all ranks.
            valid_accuracy: a fraction.
        """
        return self._loop.record(epoch, train_loss, valid_loss, valid_accuracy)

    def record_test(self, loss: float, accuracy: float) -> None:
        """Print and store how the trained model does on the test images. A collective call.

        Args:
            loss: the mean over all ranks.
            accuracy: a fraction.
        """
        self._loop.record_test(loss, accuracy)
