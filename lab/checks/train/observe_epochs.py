"""What ranks observe of the epoch."""

import functools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import NumberedImages, attempt, lines_now
from lab.checks.common.left_behind import (
    COLLECTIVES,
    collectives_skipped,
    no_memory,
    swallowed,
    swallowed_where,
    watched,
)
from lab.checks.common.meta_device import META, put_on_meta, runs_elsewhere
from lab.checks.common.pending import Handle, handles_noted
from lab.checks.common.pretended_gpu import GPU, another_of, pretended_gpu
from lab.checks.common.stand_in import named_like
from lab.checks.common.tiny import CPU, TinyNet, make_optimizer, quiet_run
from lab.checks.train.draw import DROPPED, LISTED
from lab.ranks.rank import Rank
from lab.training.run import Run


class SamplerNotes:
    """What DistributedSamplers are told, and with which epoch they are used: their own methods note it.

    So that a sampler is one by whatever a student asks for.
    """

    def __init__(self) -> None:
        self.told: list[int] = []
        self.used: list[int] = []
        set_epoch = DistributedSampler.set_epoch

        @functools.wraps(set_epoch)
        def told(sampler: DistributedSampler, epoch: int) -> None:
            self.told.append(epoch if isinstance(epoch, int) else -1)
            set_epoch(sampler, epoch)

        def used(sampler: DistributedSampler) -> Iterator[int]:
            epoch = sampler.epoch if isinstance(sampler.epoch, int) else -1
            self.used.append(epoch)
            generator = torch.Generator().manual_seed(100 + epoch)
            own: list[int] = sampler.own  # type: ignore[attr-defined]
            return iter([own[place] for place in torch.randperm(len(own), generator=generator)])

        DistributedSampler.set_epoch = told  # type: ignore[method-assign, assignment]
        DistributedSampler.__iter__ = used  # type: ignore[method-assign, assignment]

    def sampler(self, dataset: Dataset, own: list[int], ranks: int, rank: int) -> DistributedSampler:
        """As get_dataloaders() makes it, but of these samples, which need not be as many as it says."""
        made: DistributedSampler = DistributedSampler(dataset, ranks, rank, shuffle=True, drop_last=True)
        made.own = own  # type: ignore[attr-defined]
        made.num_samples = LISTED
        return made


def misplaced(known: list[tuple[Any, str]], *arguments: tuple[str, Any, bool]) -> str:
    """The first argument that is not what it should be: "the run in place of the model"; "" if all are.

    Args:
        known: what can be told by a name.
        arguments: what each should be, what it is, and whether that is right.
    """
    for what, got, right in arguments:
        if not right:
            said = f"the device {got}" if isinstance(got, torch.device) else f"a {type(got).__name__}"
            return f"{next((words for one, words in known if one is got), said)} in place of {what}"
    return ""


# What fails, as the judge names it.
STEP, COLLECTIVE = "the second train_step()", "the collective"
UNWRAPPED = "model.module"


def wrapped() -> DistributedDataParallel:
    """What is inside of it can be told from it."""
    return DistributedDataParallel(TinyNet())


@named_like(Run)
class CountedRun(Run):
    """Notes over which loaders it was asked to go, and how many batches were taken."""

    def prepare(self) -> None:
        self.asked: list[Any] = []
        self.taken = 0
        self.file = ""  # of the student's
        self.taken_at: list[tuple[int, list[int]]] = []  # in which line of it a batch of these samples was taken

    def batches(self, loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
        self.asked.append(loader)
        for batch in super().batches(loader):
            self.taken += 1
            self.taken_at.append((next(iter(lines_now(self.file)), 0), samples_of(batch[0])))
            yield batch


def samples_of(images: Tensor) -> list[int]:
    """Their numbers, which are their pixels."""
    return images[:, 0, 0, 0].int().tolist()


def unused_at(run: CountedRun, trained: list[int]) -> int:
    """The line that took the first batch which was not trained on; 0 where there is none."""
    return next((line for line, samples in run.taken_at if not set(samples) & set(trained)), 0)


def run_epochs(rank: Rank) -> dict[str, Any]:
    """Epochs whose training steps return the losses that the judge has drawn."""
    train = rank.student("train")
    given = rank.receive()
    losses = given["losses"][rank.rank]  # [epoch][step]
    run = quiet_run(CountedRun)
    assert isinstance(run, CountedRun)
    run.prepare()
    run.file = str(train.__file__)
    counted = run  # by a name that the step's own argument does not hide
    before, count = sum(given["samples"][: rank.rank]), given["samples"][rank.rank]
    sampler = SamplerNotes()
    # Some samples more, as where an epoch drops the last ones: its mean is not one over the whole set.
    dataset = NumberedImages(torch.zeros(sum(given["samples"]) + DROPPED, dtype=torch.int64), shape=(3, 32, 32))
    own = list(range(before, before + count))
    loader: DataLoader = DataLoader(
        dataset, batch_size=given["batch_size"], sampler=sampler.sampler(dataset, own, rank.world_size, rank.rank)
    )
    net = wrapped()
    sgd = make_optimizer(net)
    known = [(net, "the model"), (sgd, "the optimizer"), (loader, "the loader"), (run, "the run")]
    known += [(net.module, UNWRAPPED)]
    calls: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []

    @functools.wraps(getattr(train, "train_step", quiet_run))
    def train_step(model: Any, optimizer: Any, images: Any, labels: Any, run: Any) -> Tensor:
        # The epoch is checked by itself: this stands in for the student's step, right or wrong.
        wrong = misplaced(
            known,
            ("the model", model, model is net),
            ("the optimizer", optimizer, optimizer is sgd),
            ("the images", images, isinstance(images, Tensor) and images.ndim == 4),
            ("the labels", labels, isinstance(labels, Tensor) and labels.ndim == 1),
            ("the run", run, isinstance(run, CountedRun)),
        )
        samples = [] if wrong else samples_of(images)
        calls.append({"samples": samples, "training": net.training, "wrong": wrong, "taken": counted.taken})
        drawn = losses[len(epochs)]
        return torch.tensor(drawn[(len(calls) - 1) % len(drawn)])

    train.train_step = train_step  # type: ignore[attr-defined]
    for epoch in given["epochs"]:
        net.eval()
        calls.clear()
        sampler.told, sampler.used, run.asked, run.taken, run.taken_at = [], [], [], 0, []
        pending: list[Handle] = []
        with watched(rank, net, sgd) as left, handles_noted(pending):
            result = train.train_one_epoch(net, sgd, loader, epoch, run)
        epochs.append(
            {
                "left": left,
                "pending": sum(not handle.used for handle in pending),
                "type": type(result).__name__,
                "value": float(result) if isinstance(result, float | int) else None,
                "told": sampler.told,
                "used": sampler.used,
                "calls": list(calls),
                "by_run": any(one is loader for one in run.asked),
                "taken": run.taken,
                "lost": unused_at(run, [sample for call in calls for sample in call["samples"]]),
            }
        )
    sampler.told, sampler.used = [], []
    rest = (loader, given["epochs"][0], run)
    run.device = GPU
    half = torch.tensor(0.5)
    train.train_step = lambda *_, **__: half  # type: ignore[attr-defined]
    with pretended_gpu() as devices, suppress(Exception):
        train.train_one_epoch(net, sgd, *rest)
    run.device = CPU
    plain = TinyNet()
    with collectives_skipped():
        error = attempt(rank, train.train_one_epoch, plain, make_optimizer(plain), *rest)["error"]
    unwrapped = error if error and "AttributeError" in error["bases"] else None
    steps = iter([torch.tensor(0.5)])
    train.train_step = lambda *_, **__: next(steps, None) or no_memory()  # type: ignore[attr-defined]
    lost = {STEP: swallowed(train.train_one_epoch, net, sgd, *rest)}
    train.train_step = lambda *_, **__: torch.tensor(0.5)  # type: ignore[attr-defined]
    failing: dict[str, list[tuple[Any, str]]] = {
        "model.train()": [(net, "train")],
        "sampler.set_epoch()": [(loader.sampler, "set_epoch")],
    }
    for what, targets in (failing | {COLLECTIVE: COLLECTIVES}).items():
        lost[what] = swallowed_where(targets, train.train_one_epoch, net, sgd, *rest)
    train.train_step = lambda *_, **__: torch.tensor(0.5, device=META)  # type: ignore[attr-defined]
    run.device = META
    put_on_meta(net, sgd)
    lines: list[int] = []
    elsewhere = runs_elsewhere(train.train_one_epoch, net, sgd, *rest, lines=lines)
    if lines and devices.reduced and all(devices.reduced):
        elsewhere = ""  # it asks for the device's type: there it is "cuda", here "meta"
    return {
        "epochs": epochs,
        "elsewhere": elsewhere,
        "line": next(iter(lines), 0),
        "asked": another_of(devices),
        "unwrapped": unwrapped,
        "swallowed": lost,
    }
