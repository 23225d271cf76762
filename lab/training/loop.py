"""What happens to each batch, each step and each epoch of a run."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lab.base.errors import UserError
from lab.runs.records.epoch_record import EpochRecord, make_record
from lab.training.checkpoints import checkpoint_file, resume
from lab.training.checkpoints.guard import Guard, NoGuard
from lab.training.checkpoints.saving import Saver
from lab.training.context import NoStepper, RunContext
from lab.training.data.augment import set_epoch
from lab.training.data.batches import DeviceInputs, batch_source, put_on_device
from lab.training.metrics.classes import count_classes
from lab.training.metrics.step_figures import StepFigures
from lab.training.networks.checkpointing import checkpoint_activations
from lab.training.networks.sharding import held_bytes, shard_as_asked
from lab.training.networks.sync_batchnorm import is_synchronised
from lab.training.own_strategy import own_hooks
from lab.training.profiling.phases import Phases
from lab.training.stepping import precision, seeding
from lab.training.stepping.evaluating import FastEvaluation
from lab.training.stepping.measuring import EpochWindow, StepWindow
from lab.training.stepping.meter import EpochMeter
from lab.training.stepping.stepper import Stepper, make_stepper, rehearse_ddp, steps_per_epoch
from lab.training.stepping.together import sync_buffers
from lab.training.stepping.unheeded import unheeded
from lab.training.watching.profiler import Profiler
from lab.training.watching.watcher import StepReport, Watcher, telling_of_the_end


class BareLoop:
    """Moves and counts batches, records epochs: a run before begin(), and all that the checks of train.py need."""

    def __init__(self, context: RunContext) -> None:
        args, device = context.args, context.device
        self.meter = EpochMeter(device, micro_batches=args.accumulate)
        self.pass_steps = 0  # optimizer steps in one pass over the data
        self._args = args
        self._device = device
        self._progress, self._work = context.progress, context.work
        self._reporter = context.reporter
        self._capture, self._compiler = context.capture, context.compiler
        self._phases = Phases(nvtx=device.type == "cuda" and (args.nvtx or args.profile))
        self._stepper: Stepper | NoStepper = NoStepper()
        self._window = EpochWindow()
        self._guard = NoGuard()
        self._evaluation: FastEvaluation | None = None  # once the run has begun
        self._held_bytes: Callable[[], int] = int  # of memory for weights, gradients, optimizer state
        self._watchers: list[Watcher] = []
        self._inputs: DeviceInputs | None = None  # with --input device
        self._layout = torch.preserve_format  # of the images in memory
        self._resumed: resume.Resumed | None = None  # until the first pass
        self._is_rehearsed = True  # False from the resuming to the first batch
        self._began_earlier = False  # whether an earlier process trained a part of the epoch going on

    def epochs(self) -> Iterator[int]:
        """The epochs that are still to do, counted from 1."""
        if self._args.evaluate_only:
            raise UserError(
                "--evaluate-only: this main.py would train. After begin(), it needs `if args.evaluate_only:` with "
                "this_run.evaluate(model, datasets, loader), as step 8 of TODO 5.1b has it"
            )
        progress, epochs = self._progress, self._args.epochs
        if progress.epochs_done >= epochs:
            self._reporter.print(f"nothing left to do: {progress.epochs_done} of {epochs} epochs are done")
        for epoch in range(progress.epochs_done + 1, epochs + 1):
            progress.epoch = epoch
            self.meter.begin_epoch()
            seeding.seed_everything(self._args.seed, dist.get_rank(), epoch)
            yield epoch

    def batches(self, loader: DataLoader, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches on a device; the time from the first to the last is measured.

        The end of each optimizer step is where a run is saved, stopped, or found to have gone astray.
        """
        meter, progress, accumulate = self.meter, self._progress, self._args.accumulate
        steps, done = self._window.length(len(loader) // accumulate), progress.step
        loaded = itertools.islice(self._start(loader, steps * accumulate), (steps - done) * accumulate)
        meter.begin_pass()
        for index, (images, labels) in enumerate(self._phases.fetching(loaded), start=done * accumulate):
            images = images.to(device, non_blocking=True, memory_format=self._layout)
            if not self._is_rehearsed:
                rehearse_ddp(self._stepper.model, images, self.autocast())
                self._is_rehearsed = True
            meter.labels = labels.to(device, non_blocking=True)
            self._phases.enter("")
            with self._stepper.micro_batch(index):
                yield images, meter.labels
            meter.images += len(labels)
            if (index + 1) % accumulate == 0:
                self._end_step()
        with telling_of_the_end(self._watchers):
            self._guard.end_pass()
        sync_buffers(self._stepper.model)
        meter.end_pass()
        progress.step = 0

    def _start(self, loader: DataLoader, needed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """At least `needed` micro-batches of the epoch; in a resumed one, from where the checkpoint left them."""
        progress, resumed = self._progress, self._resumed
        if loader.num_workers:
            self._guard.before_fork()
        set_epoch(loader.dataset, progress.epoch)  # for the augmentation
        self._resumed, self._began_earlier = None, resumed is not None and progress.step > 0
        source = partial(batch_source, loader, self._inputs, needed, progress.epoch)
        if resumed is None:
            return resume.start_epoch(source, progress, self._device)
        return resume.enter_epoch(
            resumed,
            source,
            None if self._inputs else loader,
            self._args.accumulate,
            progress,
            self.meter,
            self._device,
        )

    def _end_step(self) -> None:
        self._progress.step += 1
        self.meter.end_step(self._progress.step)
        self._reporter.end_step()
        with telling_of_the_end(self._watchers, self._report_step):
            self._guard.end_step()
        self._window.end_step()
        if self._capture is not None:
            self._capture.check_in_use()
        if self._compiler is not None:
            self._compiler.report()
        if not self._window.is_open:  # who looks at a step may wait for it
            self._report_step()
        self.meter.begin_step()

    def _report_step(self) -> None:
        if not self._watchers:
            return
        with self.meter.paused():  # the first time, it counts
            work = self._work.of(self.meter.image_shape)
        speed = self.meter.images * dist.get_world_size() / self.meter.seconds
        report = StepReport(
            epoch=self._progress.epoch,
            step=self._progress.step,
            steps_per_epoch=self._progress.steps_per_epoch,
            total_step=self._progress.total_steps,
            loss=self.meter.step_loss,
            learning_rate=self._stepper.rates[0],
            images_per_second=speed,
            mfu=work.utilisation(speed),
            measures=None if self.meter.figures is None else self.meter.figures.last_step(),
        )
        for watcher in self._watchers:
            watcher.step(report)

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context for a forward pass, in which layers compute in the run's precision."""
        args, cache = self._args, self._capture is None
        return precision.autocast(self._device, args.precision, args.strategy, cache=cache)

    def backward(self, loss: Tensor) -> None:
        """loss.backward(), scaled for fp16."""
        self.meter.add_loss(loss.detach(), self._progress.step + 1)
        self._stepper.backward(loss)

    def record(self, epoch: int, train_loss: float, valid_loss: float, valid_accuracy: float) -> EpochRecord:
        """Print and store an epoch's figures. Collective."""
        args, totals = self._args, self.meter.totals()
        if totals.images == 0:
            self._reporter.print(
                "warning: run.batches(loader) was not used: no time, images/s and training accuracy"
            )
        if self._began_earlier:  # train_one_epoch() has only seen the rest of it
            whole = self.meter.mean_loss()
            train_loss = train_loss if whole is None else whole
        self._guard.check_record({"training": train_loss, "validation": valid_loss})
        if self._compiler is not None:
            self._compiler.report()  # of the evaluation
        timed = self._window.result(args.global_batch_size)
        work, means = self._work.of(self.meter.image_shape), (train_loss, valid_loss, valid_accuracy)
        record = make_record(epoch, *means, totals, self.pass_steps, timed, work, self._held_bytes())
        self._reporter.add_epoch(record, totals)
        self._progress.epochs_done, self._progress.step = epoch, 0
        for watcher in self._watchers:
            watcher.evaluated("validation", totals.evaluated / totals.evaluation_seconds)
            watcher.epoch(record)
        self._guard.end_epoch(valid_accuracy, is_last=epoch >= args.epochs)
        self.meter.begin_evaluation()  # of the test images, after the last epoch
        return record

    def record_test(self, loss: float, accuracy: float) -> None:
        """Print and store how the trained model does on the test images. Collective."""
        totals = self.meter.totals()
        self._reporter.add_test(self._progress.epochs_done, loss, accuracy, totals)
        for watcher in self._watchers:
            watcher.evaluated("test", totals.evaluated / totals.evaluation_seconds)
            watcher.test(loss, accuracy)

    def evaluate(self, phase: str, loader: DataLoader, names: Sequence[str]) -> None:
        """How the checkpoint does on these images, in all and class by class. Collective.

        Args:
            phase: val or test.
            names: of the classes.
        """
        self.meter.begin_evaluation()
        counts = count_classes(self._stepper.model, loader, len(names), self._device, self._guard.end_step)
        self._reporter.add_classes(phase, self._progress.epochs_done, counts, names, self.meter.totals())

    def close(self, *, failed: bool) -> None:
        """Give the graph back, and the optimizer and the model their own methods; end what is being written."""
        if self._capture is not None:
            self._capture.close(self._reporter.print, failed=failed)
        if self._compiler is not None:
            self._compiler.close(failed=failed)
        self._stepper.release()
        if self._evaluation is not None:
            self._evaluation.release()
        self._guard.close()


class Loop(BareLoop):
    """The loop of a run that has begun: it steps as the options ask, goes on from a checkpoint, saves, is watched.

    Args:
        model, optimizer, train_loader: as Run.begin has them.
        channels_last: whether the model's filters are [N, H, W, C] in memory.
    """

    def __init__(
        self,
        context: RunContext,
        model: nn.Module,
        optimizer: Optimizer,
        train_loader: DataLoader,
        *,
        channels_last: bool,
    ) -> None:
        super().__init__(context)
        args, device, progress = context.args, context.device, context.progress
        if self._compiler is not None:
            self._compiler.follow(model)
        elif args.checkpoint_activations:
            checkpoint_activations(model, captured=args.capture)
        if args.sync_batchnorm and dist.get_world_size() > 1 and not is_synchronised(model):
            raise UserError(
                "--sync-batchnorm finds no BatchNorm that looks at all ranks: main.py needs "
                "model = this_run.prepare_model(model) before the model is wrapped"
            )
        self.sharding, warnings = shard_as_asked(model, args)
        self.warnings = unheeded(args, device.type, model, train_loader) + warnings
        self.pass_steps = steps_per_epoch(train_loader, args)
        if args.measure_steps:
            self._window = StepWindow(device, args.measure_warmup, args.measure_steps)
        if args.input == "device":
            self._inputs = put_on_device(train_loader.dataset, device)
        if channels_last:
            self._layout = torch.channels_last
        progress.steps_per_epoch = steps = self._window.length(self.pass_steps)
        own = own_hooks(model, optimizer, args)
        self._stepper: Stepper = make_stepper(model, optimizer, args, steps, device, self._phases, **own)
        self._held_bytes = partial(held_bytes, optimizer)
        self.meter.follow(model)
        if context.path is not None and not (
            args.measure_steps or args.evaluate_only
        ):  # whose steps shall not pay for it
            self.meter.figures = StepFigures(model, steps, device, self._stepper.scaler)
            self._stepper.square = self.meter.figures.square
        self._phases.follow(model)
        self._resumed, self._is_rehearsed = context.resumed, context.resumed is None
        self._watchers = context.watchers
        if context.path is not None:
            checkpoints, say = context.path / checkpoint_file.FOLDER, context.reporter.print
            saver = Saver(checkpoints, args, say, context.resumed) if args.checkpoints else None
            self._guard = Guard(device, self._stepper, self.meter, progress, context.signals, saver)
        self._path = context.path

    def begin(self) -> None:
        """Take up the checkpoint, get the capture ready. Raises UserError where one does not fit the run."""
        args, ranks = self._args, dist.get_world_size()
        seeding.seed_everything(args.seed, dist.get_rank())
        if self._resumed is not None:
            self.warnings += resume.take_up(self._resumed, args, self._stepper, self._progress, ranks)
        if self._capture is not None:
            self._capture.begin(self._stepper, self.meter, self._phases)
        model = self._stepper.model
        self._evaluation = FastEvaluation(model, self.autocast, self._layout, self._capture)
        if args.profile and self._path is not None:
            profiler = Profiler(self._path, self._device, self._phases, self.meter, self._reporter, args.epochs)
            self._watchers.append(profiler)
