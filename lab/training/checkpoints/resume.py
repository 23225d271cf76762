"""Going on from a checkpoint: find and read it, check that it fits this run, say what is different now."""

import argparse
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lab.base.errors import UserError
from lab.runs.records.progress import Progress, position
from lab.training.checkpoints import checkpoint_file, other_model, shard_folder, training_state
from lab.training.stepping import seeding
from lab.training.stepping.meter import EpochMeter, join_states
from lab.training.stepping.stepper import Stepper
from lab.training.stepping.together import from_rank_0

# Options that a run cannot change on its way without becoming another run, as the command line spells them.
SHAPING = (
    *("dataset", "validation", "global_batch_size", "accumulate", "epochs", "optimizer", "base_lr", "scale_lr"),
    *("schedule", "warmup_epochs", "momentum", "weight_decay", "clip_norm", "seed", "precision", "augment"),
    *("randaugment", "image_size", "sync_batchnorm"),
)

EVALUATING = ("dataset", "validation", "image_size", "precision")  # what an evaluation shares with its training
ORDERING = ("seed", "dataset", "validation")  # of these, which decide on the images of an epoch and their order


@dataclass
class Resumed:
    """A checkpoint that is being resumed, as every rank knows it."""

    path: Path
    epochs_done: int
    step_in_epoch: int  # optimizer steps done in the epoch after those
    steps_per_epoch: int
    best_accuracy: float | None  # of the best epoch so far
    config: dict[str, Any]  # the options of the run that wrote it
    ranks: list[dict[str, Any]]  # what each of its ranks kept for itself
    sharded: bool  # path is a folder, in which every rank finds its weights and optimizer state
    state: dict[str, Any] = field(default_factory=dict)  # on rank 0 only: all, or what is not sharded

    @property
    def where(self) -> str:
        return position(self.epochs_done, self.step_in_epoch)


def open_checkpoint(args: argparse.Namespace) -> Resumed | None:
    """The checkpoint that args.resume asks for, read on rank 0. Collective; None where there is none to resume.

    Args:
        args: resolved.

    Raises:
        UserError: on every rank alike: it is missing, damaged, or of another model or optimizer.
    """
    if args.resume is None:
        return None
    folder = None if args.run_id is None else args.output_dir / args.run_id / checkpoint_file.FOLDER
    state: dict[str, Any] = {}

    def read() -> dict[str, Any] | None:
        path = checkpoint_file.locate(args.resume, folder)
        if path is None:
            return None
        try:
            state.update(checkpoint_file.read(path))
        except UserError as error:
            raise UserError(f"{error}{checkpoint_file.whole_one_beside(path)}") from error
        _check_kind(path, state["config"], args)
        return {"path": path, "sharded": path.is_dir(), **{key: state[key] for key in _SHARED}}

    shared = from_rank_0(read)
    if shared is None:
        return None
    resumed = Resumed(**shared, state=state)
    if resumed.sharded:
        _check_shards(resumed.path)
    return resumed


def _check_shards(folder: Path) -> None:
    """Look through a sharded checkpoint's files, each rank through some. Raises UserError on every rank alike."""
    problems = [""] * dist.get_world_size()
    dist.all_gather_object(problems, shard_folder.check(folder, dist.get_rank(), len(problems)))
    problem = next(filter(None, problems), None)
    if problem is not None:
        raise UserError(problem + from_rank_0(lambda: checkpoint_file.whole_one_beside(folder)))


_SHARED = ("epochs_done", "step_in_epoch", "steps_per_epoch", "best_accuracy", "config", "ranks")


def _check_kind(path: Path, config: dict[str, Any], args: argparse.Namespace) -> None:
    for name in ("model",) if args.evaluate_only else ("model", "optimizer"):
        if config[name] != getattr(args, name):
            raise UserError(
                f"{path} was written with --{name} {config[name]}, so it cannot go on with {getattr(args, name)}"
            )


def take_up(
    resumed: Resumed, args: argparse.Namespace, stepper: Stepper, progress: Progress, world_size: int
) -> list[str]:
    """Put the checkpoint's state into a run that has just been set up. Collective.

    Returns:
        Warnings of what is different now.

    Raises:
        UserError: the checkpoint is of another model, or the middle of an epoch that is another one here.
    """
    if args.evaluate_only:
        return take_weights(resumed, args, stepper.model, progress)
    check_end(resumed, args)
    check_position(resumed, args, progress.steps_per_epoch)
    with other_model.naming_options(resumed.path, resumed.config, args):
        if resumed.sharded:
            training_state.restore_shards(resumed.path, resumed.state, stepper)
        else:
            training_state.restore(resumed.state, stepper, str(resumed.path))
    resumed.state.clear()  # it is as large as the model
    progress.epochs_done, progress.step = resumed.epochs_done, resumed.step_in_epoch
    stepper.steps = progress.total_steps
    return differences(resumed, args, world_size)


def take_weights(resumed: Resumed, args: argparse.Namespace, model: nn.Module, progress: Progress) -> list[str]:
    """Put the checkpoint's weights into a model that is only evaluated. Collective; otherwise as take_up."""
    with other_model.naming_options(resumed.path, resumed.config, args):
        if resumed.sharded:
            training_state.restore_shard_weights(resumed.path, model)
        else:
            training_state.restore_weights(resumed.state, model, str(resumed.path))
    resumed.state.clear()
    progress.epochs_done, progress.step = resumed.epochs_done, resumed.step_in_epoch
    return [
        f"evaluated with another --{name.replace('_', '-')}: {now}, it was trained with {before}"
        for name in EVALUATING
        if name in resumed.config and (before := resumed.config[name]) != (now := getattr(args, name))
    ]


def check_end(resumed: Resumed, args: argparse.Namespace) -> None:
    """Whether the run that is asked for has come to the checkpoint's moment at all. Raises UserError."""
    needed = resumed.epochs_done + (resumed.step_in_epoch > 0)
    if needed > args.epochs:
        raise UserError(
            f"{resumed.path} is from {resumed.where}, which is past the end of --epochs {args.epochs}: use "
            f"--epochs {needed} or more, or resume an earlier checkpoint"
        )


def check_position(resumed: Resumed, args: argparse.Namespace, steps_per_epoch: int) -> None:
    """Whether the rest of the epoch can be the same images.

    Every step takes the next global batch of the epoch's order, however many ranks share it. So the middle of an
    epoch needs the same global batch, of the same images in the same seed's order; the end of an epoch does not.

    Raises:
        UserError: it cannot.
    """
    before = resumed.config["global_batch_size"]
    same = before == args.global_batch_size and resumed.steps_per_epoch == steps_per_epoch
    if resumed.step_in_epoch and not same:
        raise UserError(
            f"{resumed.path} is from {resumed.where} of {resumed.steps_per_epoch}, with a global batch of "
            f"{before}; here the batch is {args.global_batch_size} and the epoch has {steps_per_epoch} steps, so "
            f"the rest of the epoch would be other images: use --global-batch-size {before} and the same data, or "
            "resume a checkpoint from the end of an epoch"
        )
    for name in ORDERING:
        first, now = resumed.config.get(name), getattr(args, name)
        if resumed.step_in_epoch and name in resumed.config and first != now:
            raise UserError(
                f"{resumed.path} is from {resumed.where}, with --{name} {first}; with {now} the rest of the epoch "
                f"would be other images: use --{name} {first}, or resume a checkpoint from the end of an epoch"
            )


def differences(resumed: Resumed, args: argparse.Namespace, world_size: int) -> list[str]:
    """A warning for each thing that makes the rest of the run differ from what it would have been."""
    warnings = []
    for name in SHAPING:
        before, now = resumed.config.get(name), getattr(args, name)
        if name == "epochs" and args.schedule == "constant":
            continue  # only more or fewer of the same
        if name == "scale_lr" and args.optimizer == "sgd":
            continue  # whose rate follows the batch with or without
        if name in resumed.config and before != now:
            warnings.append(f"resumed with another --{name.replace('_', '-')}: {now}, before it was {before}")
    if len(resumed.ranks) != world_size:
        warnings.append(
            f"resumed on {world_size} ranks, before it was {len(resumed.ranks)}: random numbers such as dropout's "
            "are new, and sums are rounded differently"
        )
    return warnings


def start_epoch(
    source: Callable[[], Iterator[tuple[Tensor, Tensor]]], progress: Progress, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """The source's batches from the first on. Random states stay as they are, and are remembered for a resume.

    A loader's iterator draws a seed for its processes, unless they live on from the epoch before.
    """
    progress.random_at_epoch_start = before = seeding.random_states(device)
    iterator = source()
    seeding.restore_random_states(before, device)
    return iterator


def enter_epoch(
    resumed: Resumed,
    source: Callable[[], Iterator[tuple[Tensor, Tensor]]],
    loader: DataLoader | None,
    accumulate: int,
    progress: Progress,
    meter: EpochMeter,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """The source's batches from where the checkpoint left them, with the random states and counts of that moment.

    In mid-epoch the batches before are not read where the data set says that its samples are pure, functions of
    their index and the epoch, as the lab's own are. Else they are read again and dropped, so that what is random
    in the others is as it was. First come the random states of the epoch's start, for what loader workers draw
    from them; those of the checkpoint's moment come last.

    Args:
        loader: that the source reads from; None where it has the images in memory.
        accumulate: micro-batches in a step of this run; the one that saved may have had more or fewer.

    Raises:
        UserError: nobody has said which epoch it is.
    """
    if progress.epoch == 0:
        raise UserError("--resume needs train() to take its epochs from run.epochs()")
    rank = dist.get_rank()
    mine = resumed.ranks[rank] if len(resumed.ranks) == dist.get_world_size() else None
    if mine is not None and progress.step > 0:
        seeding.restore_random_states(mine["random_at_epoch_start"], device)
    progress.random_at_epoch_start = now = seeding.random_states(device)
    skipped = progress.step * accumulate
    if skipped and loader is not None and is_pure(loader.dataset):
        iterator: Iterator[tuple[Tensor, Tensor]] = iter(rest_of(loader, skipped))
    else:
        iterator = source()
        for _ in range(skipped):
            next(iterator)
    if progress.step > 0:
        counts = [one["meter"] for one in resumed.ranks]
        meter.load(mine["meter"] if mine is not None else join_states(counts, rank))
        now = mine["random"] if mine is not None else now
    seeding.restore_random_states(now, device)
    return iterator


def is_pure(dataset: Any) -> bool:
    """Whether a sample depends on its index and the epoch alone, through whatever the data set is wrapped in."""
    while not hasattr(dataset, "is_pure"):
        if not hasattr(dataset, "dataset"):
            return False
        dataset = dataset.dataset
    return bool(dataset.is_pure)


def rest_of(loader: DataLoader, skipped: int) -> DataLoader:
    """A loader of the same batches without the first ones, which nobody reads."""
    batches = list(itertools.islice(loader.batch_sampler, skipped, None))  # type: ignore[arg-type]
    names = (
        *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"),
        *("generator", "prefetch_factor"),
    )
    return DataLoader(loader.dataset, batch_sampler=batches, **{name: getattr(loader, name) for name in names})
