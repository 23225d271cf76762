"""Looks after a run at the end of each optimizer step: has it gone astray, shall it stop, is it time to save?"""

import math
from typing import NoReturn

import torch

from lab.base.errors import NotFinite
from lab.runs.records.progress import Progress
from lab.training.checkpoints.saving import Saver
from lab.training.stepping import seeding
from lab.training.stepping.meter import EpochMeter
from lab.training.stepping.signals import EXIT_PREEMPTED, Preempted, SignalWatch, Vote
from lab.training.stepping.stepper import Stepper


class NoGuard:
    """In the place of a Guard where a run keeps no records: it lets everything pass."""

    def before_fork(self) -> None:
        """Before an epoch whose loader forks workers."""

    def end_step(self) -> None:
        """After each optimizer step."""

    def end_pass(self) -> None:
        """After an epoch's last step, before the evaluation."""

    def check_record(self, losses: dict[str, float]) -> None:
        """Before an epoch's mean losses are recorded."""

    def end_epoch(self, accuracy: float, *, is_last: bool) -> None:
        """After an epoch was evaluated and recorded."""

    def close(self) -> None:
        """The run ends, for whatever reason; the other ranks may be gone."""


class Guard(NoGuard):
    """Every rank has one, and all of them come to the same decision at the same step.

    Args:
        saver: None where the options ask for no checkpoints.
    """

    def __init__(
        self,
        device: torch.device,
        stepper: Stepper,
        meter: EpochMeter,
        progress: Progress,
        signals: SignalWatch,
        saver: Saver | None,
    ) -> None:
        self._device = device
        self._stepper = stepper
        self._meter = meter
        self._progress = progress
        self._signals = signals
        self._saver = saver
        self._vote = Vote(device)

    def before_fork(self) -> None:
        """Before an epoch whose loader forks workers: wait for what cannot go on beside that."""
        if self._saver is not None:
            self._saver.finish_first()

    def end_step(self) -> None:
        """After each optimizer step.

        Raises:
            NotFinite: a loss, or at a checkpoint a weight, is no finite number.
            Preempted: a rank was told to stop, and a checkpoint was written.
        """
        self._heed(*self._vote(self._told_to_stop, self._meter.total_loss))
        if self._saver is not None and self._saver.due(self._progress.total_steps):
            self._check_losses()
            self._save()

    def end_pass(self) -> None:
        """After an epoch's last step, before the evaluation. Raises as end_step."""
        self._heed(*self._vote.now(self._told_to_stop, self._meter.total_loss))

    def check_record(self, losses: dict[str, float]) -> None:
        """Refuse to go on from an epoch whose mean losses are no numbers. Raises NotFinite."""
        for name, loss in losses.items():
            if not math.isfinite(loss):
                raise NotFinite(f"the {name} loss of epoch {self._progress.epoch} is {loss}: {self._advice()}")

    def end_epoch(self, accuracy: float, *, is_last: bool) -> None:
        """After an epoch was evaluated and recorded. Raises as end_step.

        Args:
            accuracy: on the validation images; the best epoch's checkpoint is kept as best.pth.
            is_last: a run that is done need not be stopped any more.
        """
        self._save(accuracy, wait=is_last)
        stop, _ = self._vote.now(self._told_to_stop, self._meter.total_loss)
        if stop and not is_last:
            self._stop(self._saver is not None and self._saver.finish())

    def close(self) -> None:
        """The run ends, for whatever reason; what is being written comes to its end."""
        if self._saver is not None:
            self._saver.close()

    @property
    def _told_to_stop(self) -> bool:
        return self._signals.received is not None

    def _heed(self, stop: bool, bad: bool) -> None:
        if bad:
            self._raise_bad_loss()
        if stop:
            self._check_losses()
            self._stop(self._save())

    def _check_losses(self) -> None:
        """Before a save: the vote can be some steps behind."""
        if self._vote.now(False, self._meter.total_loss)[1]:
            self._raise_bad_loss()

    def _raise_bad_loss(self) -> NoReturn:
        step, loss = self._meter.first_bad_step() or (self._progress.step, math.nan)
        epoch = self._progress.epochs_done + 1
        raise NotFinite(f"the loss became {loss} at epoch {epoch}, step {step}: {self._advice()}")

    def _advice(self) -> str:
        if self._saver is None:
            return "lower --base-lr, or use --warmup-epochs or --clip-norm"
        return self._saver.advice()

    def _save(self, accuracy: float | None = None, *, wait: bool = True) -> bool:
        if self._saver is None:
            return False
        of_rank = {
            "random": seeding.random_states(self._device),
            "random_at_epoch_start": self._progress.random_at_epoch_start,
            "meter": self._meter.state(),
        }
        if self._progress.step == 0:  # the next epoch starts as this moment is
            of_rank["random_at_epoch_start"] = of_rank["random"]
        return self._saver.save(self._stepper, self._progress, of_rank, accuracy, wait=wait)

    def _stop(self, saved: bool) -> NoReturn:
        name = self._signals.received.name if self._signals.received else "a signal to another rank"
        if saved:
            what = f"saved at {self._progress.where}; --resume latest goes on from there"
        elif self._saver is not None and self._saver.last_good:
            what = f"not saved at {self._progress.where}; the last good checkpoint is {self._saver.last_good}"
        else:
            what = f"no checkpoint at {self._progress.where}"
        raise Preempted(f"stopped by {name}: {what} (exit code {EXIT_PREEMPTED})")
