"""When a run saves, and as what: latest.pth, best.pth, epoch_XXX.pth. Collective, like training_state.py.

The weights are copied while all ranks wait; on GPUs they wait only until the copying is started. At an epoch's
end a thread writes the copy while the training goes on. With --checkpoint-format sharded every rank has a thread.
"""

import argparse
import concurrent.futures
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lab.base.errors import NotFinite, UserError
from lab.runs import options
from lab.runs.records.progress import Progress
from lab.training.checkpoints import checkpoint_file, shard_folder, shards, training_state
from lab.training.checkpoints.resume import Resumed
from lab.training.checkpoints.training_state import Collected
from lab.training.stepping.stepper import Stepper
from lab.training.stepping.together import from_rank_0


@dataclass(frozen=True)
class _Pending:
    """A checkpoint that is being written, as every rank knows it."""

    where: str
    best: float | None  # accuracy, once it is written
    written: Future[str | None]  # why the disk did not take it; of a single file, rank 0's counts


class Saver:
    """Writes a run's checkpoints.

    Args:
        folder: the run's checkpoint folder; only rank 0 writes there.
        args: resolved.
        say: prints a line on rank 0.
        resumed: the checkpoint the run goes on from, the last good one until there is a newer one.
    """

    def __init__(
        self, folder: Path, args: argparse.Namespace, say: Callable[[str], None], resumed: Resumed | None
    ) -> None:
        self._folder = folder
        self._args = args
        self._say = say
        self._best = self._kept_accuracy() if resumed and dist.get_rank() == 0 else None  # rank 0 decides
        self.last_good = f"{resumed.path} ({resumed.where})" if resumed else None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: _Pending | None = None
        self._first: Future[str | None] | None = None
        # The threads talk to each other while the training does: in a group of their own.
        self._group = _own_group() if args.checkpoint_format == "sharded" else None

    def _kept_accuracy(self) -> float | None:
        """Of the best.pth that is there.

        Going on from another run's file, the new folder has none yet. And latest.pth may tell of a better one that
        the disk had no more room for.
        """
        try:
            path = shard_folder.newest(self._folder / checkpoint_file.BEST)
            best: float | None = None if path is None else checkpoint_file.read(path)["best_accuracy"]
        except UserError as error:
            self._say(f"warning: the best epoch so far cannot be told, so the next one replaces it: {error}")
            return None
        return best

    def due(self, total_steps: int) -> bool:
        """Whether --save-every-steps asks for a checkpoint after so many steps of the whole run."""
        every = self._args.save_every_steps
        return every is not None and total_steps % every == 0

    def save(
        self,
        stepper: Stepper,
        progress: Progress,
        of_rank: dict[str, Any],
        accuracy: float | None = None,
        *,
        wait: bool = True,
    ) -> bool:
        """Write latest.pth, and at an epoch's end best.pth and epoch_XXX.pth as they are due.

        A disk that does not take it is a warning: the run goes on, and the checkpoint that was there stays.

        Args:
            stepper: has the wrapped model and its optimizer.
            progress: how far the run is.
            of_rank: what this rank keeps for itself.
            accuracy: the validation accuracy of the epoch that has just ended.
            wait: until it is on the disk. Else a thread writes it while the training goes on, and finish(), or the
                next save, tells how that went.

        Returns:
            Whether it was written, as far as is known.

        Raises:
            NotFinite: the weights are not finite numbers; nothing is written.
        """
        self.finish()
        improved = accuracy is not None and (self._best is None or accuracy > self._best)
        best = accuracy if improved else self._best
        where = progress.where
        if not training_state.all_finite(stepper.model):
            raise NotFinite(f"the weights are no longer finite numbers at {where}: {self.advice()}")
        collected = training_state.collect(stepper, of_rank, sharded=self._group is not None)
        names: list[str] = []
        if collected.state:
            collected.state.update(
                {
                    "format": checkpoint_file.FORMAT,
                    "config": options.as_record(self._args),
                    "epochs_done": progress.epochs_done,
                    "step_in_epoch": progress.step,
                    "steps_per_epoch": progress.steps_per_epoch,
                    "best_accuracy": best,
                }
            )
            names = [checkpoint_file.BEST] * improved + self._epoch_names(progress)
        if self._group is None:
            written = self._writer.submit(self._write, collected, names)
        else:
            token = f"{shard_folder.PREFIX}epoch{progress.epoch}-{secrets.token_hex(4)}"
            folder = self._folder / from_rank_0(lambda: token)
            written = self._writer.submit(self._write_shards, collected, folder, names, self._group)
        self._pending = _Pending(where, best, written)
        self._first = self._first or written
        return self.finish() if wait else True

    def finish(self) -> bool:
        """Wait until what is being written is on the disk. Collective.

        Returns:
            Whether it was written; True where nothing is being written.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return True
        concurrent.futures.wait([pending.written])
        problem = from_rank_0(lambda: pending.written.result())  # what nobody expected is raised here
        return self._settle(pending, problem)

    def finish_first(self) -> None:
        """Wait until the run's first checkpoint is on the disk, for a process that is about to be forked.

        Each operator of PyTorch that is used for the first time leaves a note for the process's end
        (__cxa_atexit), and glibc keeps these under a lock that a fork copies as it is. It needs memory there, and
        fork() stops whoever asks for memory: a child forked meanwhile finds the lock taken, for ever. So a loader
        worker hung in its first new operator. The first write calls all that the later ones call.
        """
        if self._first is not None:
            concurrent.futures.wait([self._first])

    def close(self) -> None:
        """As finish(), for a run that ends: the other ranks may be gone. No process may end before."""
        pending, self._pending = self._pending, None
        if pending is not None:
            error = pending.written.exception()
            self._settle(pending, pending.written.result() if error is None else repr(error))
        self._writer.shutdown()

    def _settle(self, pending: _Pending, problem: str | None) -> bool:
        if problem is not None:
            stays = f"the last good one is {self.last_good}" if self.last_good else "there is none yet"
            self._say(f"warning: the checkpoint of {pending.where} could not be written ({problem}); {stays}")
            return False
        self._best = pending.best
        latest = self._folder / checkpoint_file.LATEST
        self.last_good = f"{latest if self._group is None else shard_folder.pointer(latest)} ({pending.where})"
        return True

    def advice(self) -> str:
        """What to do about a run that has gone astray. It ends with that."""
        self.close()
        good = f"The last good checkpoint is {self.last_good}" if self.last_good else "There is no checkpoint yet"
        return f"lower --base-lr, or use --warmup-epochs or --clip-norm. {good}"

    def _epoch_names(self, progress: Progress) -> list[str]:
        every = self._args.save_frequency
        due = every is not None and progress.step == 0 and progress.epochs_done % every == 0
        return [checkpoint_file.epoch_name(progress.epochs_done)] if due else []

    def _write(self, collected: Collected, other_names: list[str]) -> str | None:
        collected.wait()
        if not collected.state:  # not rank 0
            return None
        latest = self._folder / checkpoint_file.LATEST
        try:
            checkpoint_file.write(collected.state, latest)
            shard_folder.unpoint(latest)
            for name in other_names:
                checkpoint_file.also_as(latest, self._folder / name)
                shard_folder.unpoint(self._folder / name)
            shard_folder.clean(self._folder)
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _write_shards(
        self, collected: Collected, folder: Path, other_names: list[str], group: dist.ProcessGroup
    ) -> str | None:
        """In the threads of all ranks. What names the folder comes last: a kill leaves what was named before."""
        collected.wait()
        is_first = dist.get_rank() == 0
        try:
            sums = shards.write(collected.shards, folder, group)
            if is_first:
                checkpoint_file.write(collected.state, folder / shard_folder.RUN)
                sums[shard_folder.RUN] = shard_folder.sums_of(folder / shard_folder.RUN)
                shard_folder.finish(folder, sums)
                for name in (checkpoint_file.LATEST, *other_names):
                    shard_folder.point(self._folder / name, folder)
                shard_folder.clean(self._folder)
        except OSError as error:
            if is_first:
                shutil.rmtree(folder, ignore_errors=True)  # what is on a full disk of it
            return error.strerror or str(error)
        return None


def _own_group() -> dist.ProcessGroup:
    """Of all ranks, for what is in main memory."""
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)  # every rank is in it
    return group
