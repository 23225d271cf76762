"""How a network does class by class: which images of each it knows, and what it takes the others for."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.words import printable

FILLER = -100  # the label of what only fills a batch up
MOST_LINES = 20  # of the table for people; the file has all classes


@dataclass(frozen=True)
class ClassCounts:
    """Over all ranks, each image once."""

    loss: float  # the mean
    matrix: Tensor  # [classes, classes] on the CPU: row, what it is; column, what it was taken for

    @property
    def images(self) -> list[int]:
        """Of each class."""
        counts: list[int] = self.matrix.sum(dim=1).tolist()
        return counts

    @property
    def correct(self) -> list[int]:
        """Of each class, those that were known."""
        counts: list[int] = self.matrix.diagonal().tolist()
        return counts

    @property
    def accuracy(self) -> float:
        """A fraction of all images; nan where there are none."""
        return _fraction(sum(self.correct), sum(self.images))

    @property
    def accuracies(self) -> list[float]:
        """Of each class; nan for one without images."""
        return [_fraction(*pair) for pair in zip(self.correct, self.images, strict=True)]


def count_classes(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    classes: int,
    device: torch.device,
    end_batch: Callable[[], None],
) -> ClassCounts:
    """Evaluate a model. Collective; there are as many batches on every rank, as in a training run's evaluation.

    Args:
        batches: images and labels; filler has the label FILLER.
        end_batch: called after each batch, on every rank.

    Raises:
        UserError: the model tells another number of classes apart.
    """
    losses = torch.zeros((), dtype=torch.float64, device=device)
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=device)  # the last one is of filler
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            logits = model(images)
            if logits.shape[1] != classes:
                raise UserError(f"the network tells {logits.shape[1]} classes apart, but the data has {classes}")
            losses += F.cross_entropy(logits, labels, ignore_index=FILLER, reduction="sum")
            cell = torch.where(labels == FILLER, classes * classes, labels * classes + logits.argmax(dim=1))
            counts.index_add_(0, cell, torch.ones_like(cell))
            end_batch()
    dist.all_reduce(losses)
    dist.all_reduce(counts)
    matrix = counts[:-1].reshape(classes, classes).cpu()
    return ClassCounts(_fraction(losses.item(), int(matrix.sum())), matrix)


def describe(counts: ClassCounts, names: Sequence[str]) -> list[str]:
    """A table for people; of very many classes, those that are known least."""
    known = sorted(range(len(names)), key=lambda i: counts.accuracies[i])  # nan stays where it is
    shown = range(len(names)) if len(names) <= MOST_LINES else known[:MOST_LINES]
    width = max(len(printable(names[i])) for i in shown)
    lines = [f"  {'class':<{width}}  images  accuracy  most often taken for"]
    for i in shown:
        wrong = counts.matrix[i].clone()
        wrong[i] = 0
        other = f"{printable(names[int(wrong.argmax())])} ({int(wrong.max())})" if wrong.any() else ""
        accuracy = f"{counts.accuracies[i]:.1%}" if counts.images[i] else ""
        lines.append(f"  {printable(names[i]):<{width}}  {counts.images[i]:>6}  {accuracy:>8}  {other}".rstrip())
    if len(names) > MOST_LINES:
        lines.append(f"  ... the {MOST_LINES} least known of {len(names)} classes")
    return lines


def write_tables(counts: ClassCounts, names: Sequence[str], folder: Path, phase: str) -> None:
    """PHASE_classes.csv and PHASE_confusion.csv."""
    per_class = zip(names, counts.images, counts.correct, counts.accuracies, strict=True)
    rows: list[Sequence[object]] = [("class", "images", "correct", "accuracy")]
    rows += [(name, n, k, "" if math.isnan(a) else f"{a:.6g}") for name, n, k, a in per_class]
    _write(folder / f"{phase}_classes.csv", rows)
    table = [("true \\ predicted", *names), *zip(names, *counts.matrix.T.tolist(), strict=True)]
    _write(folder / f"{phase}_confusion.csv", table)


def _write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    write_whole(path, text.getvalue())


def _fraction(part: float, whole: int) -> float:
    return part / whole if whole else math.nan
