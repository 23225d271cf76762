"""One training run: what train.py and main.py need beyond the exercises.

A Run knows device and ranks, moves and times the batches, steps the optimizer as the options ask, saves and
resumes, and writes the records. The exercises see only its few methods, and stay short when runs learn more.
"""

import argparse
import contextlib
import itertools
from collections.abc import Iterator
from functools import partial
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lab.runs import options
from lab.runs.records import provenance
from lab.runs.records.epoch_record import EpochRecord, make_record
from lab.runs.records.folder import RunFolder
from lab.runs.records.progress import Progress
from lab.training.checkpoints import checkpoint_file, resume
from lab.training.checkpoints.guard import Guard
from lab.training.checkpoints.saving import Saver
from lab.training.data.augment import set_epoch
from lab.training.networks.checkpointing import checkpoint_activations
from lab.training.profiling.phases import Phases
from lab.training.stepping import precision, seeding
from lab.training.stepping.capture import Capture
from lab.training.stepping.measuring import DeviceInputs, StepWindow, batch_source
from lab.training.stepping.meter import EpochMeter
from lab.training.stepping.signals import Preempted, SignalWatch
from lab.training.stepping.stepper import Stepper, make_stepper, rehearse_ddp, steps_per_epoch, sync_buffers
from lab.training.stepping.together import from_rank_0, gather_hosts, leave_together
from lab.training.stepping.unheeded import unheeded
from lab.training.watching import tensorboard
from lab.training.watching.announce import Setup, count_parameters
from lab.training.watching.profiler import Profiler
from lab.training.watching.progress_bar import StepOutput
from lab.training.watching.reporter import Reporter
from lab.training.watching.tensorboard import TensorBoard
from lab.training.watching.watcher import Watcher, report_step, telling_of_the_end

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
        self.device = device
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.args, self._warnings = options.resolve(
            args, self.world_size, device=device.type, default_precision=precision.default_precision(device)
        )
        self.hosts = gather_hosts()
        self.watchers: list[Watcher] = []
        self._keeps = records and not args.dry_run  # records and checkpoints, with an eye on signals and losses
        self._warnings += tensorboard.resolve(self.args) if self._keeps else []
        self.progress = Progress()
        self._phases = Phases(nvtx=device.type == "cuda" and (args.nvtx or args.profile))
        self.capture = Capture(device) if self.args.capture else None
        self._meter = EpochMeter(device, micro_batches=args.accumulate)
        self._signals = SignalWatch()
        steps, warmup = self.args.measure_steps, self.args.measure_warmup
        self._window = StepWindow(device, warmup, steps) if steps else None  # in the place of epochs
        self._inputs: DeviceInputs | None = None  # from begin() on, with --input device
        self._pass_steps = 0  # optimizer steps in one pass over the data; from begin() on
        self._channels_last = False
        self._stepper: Stepper | None = None  # from begin() on
        self._guard: Guard | None = None  # likewise, where the run keeps records
        seeding.prepare(args.seed, deterministic=args.deterministic)
        self._resumed = resume.open_checkpoint(self.args)
        self._goes_on = self._resumed is not None  # until the first batch
        self._began_earlier = False  # whether an earlier process trained a part of the epoch going on
        talks = records and self.rank == 0
        origin = provenance.columns(args, self.args, self.world_size, device) if talks else {}
        self._reporter = Reporter(self.args, self.hosts, device, origin, talks=talks)
        self._path = from_rank_0(partial(self._reporter.open_folder, self._goes_on)) if self._keeps else None
        if self._path is not None:
            self.watchers.append(StepOutput(self.args, self._reporter.terminal, self._reporter.log, self.print))
            if self.args.tensorboard:
                self.watchers.append(TensorBoard(self._path, device, self.progress, self.print))

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder: on rank 0 of a run that keeps records, else None."""
        return self._reporter.folder

    # ---- what main.py calls

    def __enter__(self) -> "Run":
        if self._keeps:
            self._signals.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        preempted = isinstance(error, Preempted)
        if self.capture is not None:
            self.capture.close(self.print, failed=error is not None and not preempted)
        if self._stepper is not None:
            self._stepper.release()
        for watcher in self.watchers:
            watcher.close()
        self._reporter.close(error)
        if preempted:
            leave_together()
        self._signals.__exit__(kind, error, trace)

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """What the options ask of a new model before it is wrapped. Returns the model to go on with."""
        self._channels_last = precision.wants_channels_last(model, self.device, self.args.strategy)
        if self._channels_last:
            model.to(memory_format=torch.channels_last)
        return model

    def begin(self, model: nn.Module, optimizer: Optimizer, train_loader: DataLoader) -> None:
        """Take over the optimizer's stepping, go on from a checkpoint if asked to, report what is about to run.

        Args:
            model: wrapped, on its device.
            optimizer: of the wrapped model. From here on its zero_grad() and step() are the run's.
            train_loader: its length and its data set tell the steps and the samples that an epoch drops.
        """
        args, progress = self.args, self.progress
        if args.checkpoint_activations:
            checkpoint_activations(model)
        self._warnings += unheeded(args, self.device.type, model, train_loader)
        self._pass_steps = steps_per_epoch(train_loader, args)
        progress.steps_per_epoch = self._window.total if self._window else self._pass_steps
        self._inputs = DeviceInputs(train_loader.dataset, self.device) if args.input == "device" else None
        self._stepper = stepper = make_stepper(
            model, optimizer, args, progress.steps_per_epoch, self.device, self._phases
        )
        self._meter.follow(model)
        self._phases.follow(model)
        seeding.seed_everything(args.seed, self.rank)
        if self._resumed is not None:
            self._warnings += resume.take_up(self._resumed, args, stepper, progress, self.world_size)
        if self.capture is not None:
            self.capture.begin(stepper, self._meter, self._phases)
        if self._path is not None:
            checkpoints = self._path / checkpoint_file.FOLDER
            saver = Saver(checkpoints, args, self.print, self._resumed) if args.checkpoints else None
            self._guard = Guard(self.device, stepper, self._meter, progress, self._signals, saver)
            if args.profile:
                self.watchers.append(
                    Profiler(self._path, self.device, self._phases, self._meter, self._reporter, args.epochs)
                )
        self._report(model, train_loader)
        for watcher in self.watchers:
            watcher.begin(progress, model, optimizer)

    def _report(self, model: nn.Module, loader: DataLoader) -> None:
        steps, channels_last = self._pass_steps, self._channels_last
        dropped = len(loader.dataset) - steps * self.args.global_batch_size  # type: ignore[arg-type]
        source = f"{self._resumed.path}, {self.progress.where}" if self._resumed else None
        parameters = count_parameters(model)
        setup = Setup(self.args, self.device, self.hosts, parameters, steps, dropped, channels_last, source)
        self._reporter.begin(setup, self._warnings, self.progress.epochs_done)

    def print(self, line: str) -> None:
        """Print on rank 0, and into train.log."""
        self._reporter.print(line)

    # ---- what train.py calls

    def epochs(self) -> Iterator[int]:
        """The epochs that are still to do, counted from 1."""
        progress = self.progress
        if progress.epochs_done >= self.args.epochs:
            self.print(f"nothing left to do: {progress.epochs_done} of {self.args.epochs} epochs are done")
        for epoch in range(progress.epochs_done + 1, self.args.epochs + 1):
            progress.epoch = epoch
            self._meter.begin_epoch()
            seeding.seed_everything(self.args.seed, self.rank, epoch)
            yield epoch

    def batches(self, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches on this rank's device; the time from the first to the last is measured.

        The end of each optimizer step is where a run is saved, stopped, or found to have gone astray.
        """
        meter, stepper, progress, accumulate = self._meter, self._stepper, self.progress, self.args.accumulate
        steps, done = self._window.total if self._window else len(loader) // accumulate, progress.step
        loaded = itertools.islice(self._start(loader), (steps - done) * accumulate)
        layout = torch.channels_last if self._channels_last else torch.preserve_format
        meter.begin_pass()
        for index, (images, labels) in enumerate(self._phases.fetching(loaded), start=done * accumulate):
            images = images.to(self.device, non_blocking=True, memory_format=layout)
            if self._goes_on and stepper is not None:
                rehearse_ddp(stepper.model, images, self.autocast())
            self._goes_on = False
            meter.labels = labels.to(self.device, non_blocking=True)
            self._phases.enter("")
            with stepper.micro_batch(index) if stepper is not None else contextlib.nullcontext():
                yield images, meter.labels
            meter.images += len(labels)
            if (index + 1) % accumulate == 0:
                self._end_step()
        if self._guard is not None:
            with telling_of_the_end(self.watchers):
                self._guard.end_pass()
        if stepper is not None:
            sync_buffers(stepper.model)
        meter.end_pass()
        progress.step = 0

    def _start(self, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
        set_epoch(loader.dataset, self.progress.epoch)  # for the augmentation
        resumed, self._resumed = self._resumed, None
        self._began_earlier = resumed is not None and self.progress.step > 0
        progress, accumulate = self.progress, self.args.accumulate
        needed = self._window.total * accumulate if self._window else len(loader)
        source = partial(batch_source, loader, self._inputs, needed, progress.epoch)
        if resumed is not None:
            return resume.enter_epoch(resumed, source, accumulate, progress, self._meter, self.device)
        return resume.start_epoch(source, progress, self.device)

    def _end_step(self) -> None:
        self.progress.step += 1
        self._reporter.end_step()
        with telling_of_the_end(self.watchers, self._report_step):
            if self._guard is not None:
                self._guard.end_step()
        if self._window is not None:
            self._window.end_step()
        if self.capture is not None:
            self.capture.check_in_use()
        if self._window is None or not self._window.is_open:  # who looks at a step may wait for it
            self._report_step()

    def _report_step(self) -> None:
        if self.watchers and self._stepper is not None:
            speed = self._meter.images * self.world_size / self._meter.seconds
            report_step(self.watchers, self.progress, self._meter, self._stepper.rates[0], speed)

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context for a forward pass, in which layers compute in the run's precision."""
        cache = self.capture is None
        return precision.autocast(self.device, self.args.precision, self.args.strategy, cache=cache)

    def backward(self, loss: Tensor) -> None:
        """loss.backward(), scaled for fp16."""
        self._meter.add_loss(loss.detach(), self.progress.step + 1)
        if self._stepper is None:
            loss.backward()
        else:
            self._stepper.backward(loss)

    def record(self, epoch: int, train_loss: float, valid_loss: float, valid_accuracy: float) -> EpochRecord:
        """Print and store an epoch's figures. A collective call: every rank makes it.

        Args:
            epoch: counted from 1.
            train_loss, valid_loss: means over all ranks.
            valid_accuracy: a fraction.
        """
        totals = self._meter.totals()
        if totals.images == 0:
            self.print("warning: run.batches(loader) was not used: no time, images/s and training accuracy")
        if self._began_earlier:  # train_one_epoch() has only seen the rest of it
            whole = self._meter.mean_loss()
            train_loss = train_loss if whole is None else whole
        if self._guard is not None:
            self._guard.check_record({"training": train_loss, "validation": valid_loss})
        timed = None if self._window is None else self._window.result(self.args.global_batch_size)
        record = make_record(epoch, train_loss, valid_loss, valid_accuracy, totals, self._pass_steps, timed)
        self._reporter.add_epoch(record, totals)
        self.progress.epochs_done, self.progress.step = epoch, 0
        for watcher in self.watchers:
            watcher.epoch(record)
        if self._guard is not None:
            self._guard.end_epoch(valid_accuracy, is_last=epoch >= self.args.epochs)
        self._meter.begin_evaluation()  # of the test images, after the last epoch
        return record

    def record_test(self, loss: float, accuracy: float) -> None:
        """Print and store how the trained model does on the test images. A collective call.

        Args:
            loss: the mean over all ranks.
            accuracy: a fraction.
        """
        self._reporter.add_test(self.progress.epochs_done, loss, accuracy, self._meter.totals())
        for watcher in self.watchers:
            watcher.test(loss, accuracy)
