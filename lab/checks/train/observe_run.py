"""What ranks observe of the whole run."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from lab.checks.common.attempt import NumberedImages, attempt
from lab.checks.common.left_behind import collectives_skipped, no_memory, swallowed, watched
from lab.checks.common.meta_device import META, put_on_meta, runs_elsewhere
from lab.checks.common.pretended_gpu import GPU, pretended_gpu
from lab.checks.common.stand_in import called_alike, named_like
from lab.checks.common.tiny import CPU, TinyNet, make_optimizer, quiet_run
from lab.checks.train.draw import TIRING
from lab.checks.train.observe_epochs import UNWRAPPED, misplaced, wrapped
from lab.checks.train.observe_evaluation import ValidationShard
from lab.ranks.rank import Rank
from lab.runs.records.epoch_record import EpochRecord
from lab.training.run import Run


@named_like(Run)
class NotedRun(Run):
    """Yields the epochs that the judge has drawn, and notes what is recorded instead of printing it."""

    def prepare(self, epochs: list[int], events: list[dict[str, Any]]) -> None:
        self.drawn_epochs = epochs
        self.events = events
        self.records: list[EpochRecord] = []

    def epochs(self) -> Iterator[int]:
        for epoch in self.drawn_epochs:
            self.events.append({"what": "begin", "epoch": epoch, "on": "", "numbers": [], "wrong": ""})
            yield epoch

    def record(self, epoch: int, train_loss: float, valid_loss: float, valid_accuracy: float) -> EpochRecord:
        numbers = [float(number) for number in (train_loss, valid_loss, valid_accuracy)]
        self.events.append({"what": "record", "epoch": int(epoch), "on": "", "numbers": numbers, "wrong": ""})
        self.records.append(EpochRecord(epoch, train_loss, valid_loss, valid_accuracy, 0.5, 1.0, 100.0, 2**20))
        return self.records[-1]


def on_the_device(device: Any, where: torch.device) -> bool:
    """Whether a device is where the model is, by its name or number too; "cuda" is the current one."""
    return str(device) in (str(where), str(where.index)) or (where.type == "cuda" and str(device) == "cuda")


def failing_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which fails after so many calls."""
    done = itertools.count()
    return lambda *args, **kwargs: function(*args, **kwargs) if next(done) < calls else no_memory()


def epochs_endured(train: ModuleType, run: NotedRun, *rest: object) -> int:
    """After how many epochs of TIRING train() came to an end; all of them where it raised, as it may for nan."""
    run.prepare(list(range(1, len(TIRING) + 1)), [])
    run.args.epochs = len(TIRING)
    done: list[tuple[float, float, float]] = []

    def train_one_epoch(*_: object, **__: object) -> float:
        done.append(TIRING[len(done) % len(TIRING)])
        return done[-1][0]

    stand_ins: dict[str, Any] = {
        "train_one_epoch": train_one_epoch,
        "evaluate": lambda *_, **__: train.Evaluation(*(done or TIRING)[-1][1:]),
    }
    with suppress(Exception), mock.patch.multiple(train, **stand_ins):
        train.train(*rest, run)
        return len(run.records)
    return len(TIRING)


def run_training(rank: Rank) -> dict[str, Any]:
    """What train() calls, in which order, with which numbers; the epochs and evaluations return drawn ones."""
    train = rank.student("train")
    given = rank.receive()
    events: list[dict[str, Any]] = []
    runs: list[NotedRun] = []
    for epochs, noted in ((given["epochs"], events), (given["epochs"][:1], [])):
        one = quiet_run(NotedRun)
        assert isinstance(one, NotedRun)
        one.prepare(epochs, noted)
        one.args.epochs = epochs[-1]
        runs.append(one)
    images = NumberedImages(torch.zeros(4, dtype=torch.int64))
    sampler: DistributedSampler = DistributedSampler(images, drop_last=True)
    shard = ValidationShard(images, rank.rank, rank.world_size)  # type: ignore[arg-type]
    loaders: list[DataLoader] = [DataLoader(images, sampler=sampler), DataLoader(shard)]
    net = wrapped()
    sgd = make_optimizer(net)
    known = [
        (net, "the model"),
        (net.module, UNWRAPPED),
        (sgd, "the optimizer"),
        *((one, "the run") for one in runs),
    ]
    known += [(loaders[0], "the training loader"), (loaders[1], "the validation loader")]

    def name(loader: Any) -> str:
        return next((n for n, known in zip(("train", "valid"), loaders, strict=True) if known is loader), "other")

    def number(key: str, what: str) -> float:
        done = sum(event["what"] == what for event in events) - 1
        return given[key][done % len(given[key])]

    def note(what: str, epoch: int, loader: Any, *others: tuple[str, Any, bool]) -> None:
        wrong = misplaced(known, *others)
        events.append({"what": what, "epoch": epoch, "on": name(loader), "numbers": [], "wrong": wrong})

    def train_one_epoch(model: Any, optimizer: Any, loader: Any, epoch: Any, run: Any) -> float:
        counted = isinstance(epoch, int)
        note(
            "train",
            epoch if counted else -1,
            loader,
            ("the model", model, model is net),
            ("the optimizer", optimizer, optimizer is sgd),
            ("the loader", loader, isinstance(loader, DataLoader)),
            ("the epoch", epoch, counted),
            ("the run", run, any(run is one for one in runs)),
        )
        return number("train_loss", "train")

    def evaluate(model: Any, loader: Any, device: Any) -> Any:
        note(
            "evaluate",
            0,
            loader,
            ("the model", model, model is net),
            ("the loader", loader, isinstance(loader, DataLoader)),
            ("run.device", device, on_the_device(device, next(net.parameters()).device)),
        )
        return train.Evaluation(loss=number("loss", "evaluate"), accuracy=number("accuracy", "evaluate"))

    drawn_epoch = called_alike(getattr(train, "train_one_epoch", train_one_epoch), train_one_epoch)
    train.train_one_epoch = drawn_epoch  # type: ignore[attr-defined]
    drawn_evaluate = called_alike(getattr(train, "evaluate", evaluate), evaluate)
    train.evaluate = drawn_evaluate  # type: ignore[attr-defined]
    run, again = runs
    with watched(rank, net, sgd) as left:
        result = train.train(net, sgd, *loaders, run)
    returned = list(result)[:100] if isinstance(result, list | tuple) else []
    observed = list(events)
    second = train.train(net, sgd, *loaders, again)
    repeated = [again.records[:1] == [item] for item in second] if isinstance(second, list | tuple) else []

    # A run that is continued when all its epochs are done.
    again.prepare([], [])
    nothing_left = attempt(rank, train.train, net, sgd, *loaders, again)

    def broken(*_: object, **__: object) -> float:
        raise OSError("no space left on device")

    train.train_one_epoch = broken  # type: ignore[attr-defined]
    again.prepare(given["epochs"][:1], [])
    error = attempt(rank, train.train, net, sgd, *loaders, again)["error"]

    # Once more where a torch.device("cpu") of the student's is another device than the run's.
    train.train_one_epoch = drawn_epoch  # type: ignore[attr-defined]
    again.prepare(given["epochs"][:1], [])
    again.device = net.device = GPU
    before, elsewhere = len(events), list[dict[str, Any]]()
    with suppress(Exception), pretended_gpu():
        train.train(net, sgd, *loaders, again)
    elsewhere += [event for event in events[before:] if event["wrong"]]
    again.device = CPU
    lost: dict[str, str] = {}
    failing: dict[str, tuple[Any, str]] = {
        "train_one_epoch()": (train, "train_one_epoch"),
        "evaluate()": (train, "evaluate"),
        "run.record()": (again, "record"),
    }
    for (what, (home, attribute)), good in itertools.product(failing.items(), (0, 1)):
        again.prepare(given["epochs"], [])
        with mock.patch.object(home, attribute, failing_after(good, getattr(home, attribute))):
            lost[what] = lost.get(what) or swallowed(train.train, net, sgd, *loaders, again)
    plain = TinyNet()
    again.prepare(given["epochs"][:1], [])
    with collectives_skipped():
        unwrapped = attempt(rank, train.train, plain, make_optimizer(plain), *loaders, again)["error"]
    if unwrapped and "AttributeError" not in unwrapped["bases"]:
        unwrapped = None
    endured = epochs_endured(train, again, net, sgd, *loaders)
    again.prepare(given["epochs"][:1], [])
    put_on_meta(net, sgd)
    again.device = META
    problem = runs_elsewhere(train.train, net, sgd, *loaders, again)
    return {
        "events": observed,
        "problem": problem,
        "elsewhere": elsewhere,
        "left": left,
        "unwrapped": unwrapped,
        "endured": endured,
        "swallowed": lost,
        "error": error,
        "second": repeated,
        "finished": {"error": nothing_left["error"], "empty": nothing_left["value"] == []},
        "type": type(result).__name__,
        # Which of the records is it? -1: none of them.
        "returned": [next((i for i, r in enumerate(run.records) if r is item), -1) for item in returned],
        "item": type(returned[0]).__name__ if returned else "",
    }
