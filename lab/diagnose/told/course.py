"""How training went, as a run tells of its epochs: one that is done may have learned nothing."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.base.words import ordinal
from lab.diagnose.told.finding import Finding

_NUMBER = r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_EPOCH = re.compile(
    rf"^(?:\[rank\d+\]: ?|\d+: )?\[METRIC\] epoch=(?P<epoch>\d+) .*?train_loss=(?P<train>{_NUMBER}) "
    rf"val_loss=(?P<valid>{_NUMBER}) acc=(?P<accuracy>{_NUMBER})",
    re.M,
)
_LENGTH = re.compile(r"^\s+length\s+(\d+) epochs?\b", re.M)
_CLASSES = re.compile(r"images of (\d+) classes")
# Of other programs: "loss: 0.31", "train_loss=nan", "'loss': nan". The last one says whether it came back.
_LOSS = re.compile(
    rf"\b(?:\w+[_/ ])?[Ll]oss['\"]?\s?(?:[=:]|is)?\s{{0,3}}(?P<loss>{_NUMBER}|NaN|-nan|-inf)(?![\w.])"
)
_FEW = 3  # epochs, before which nothing can be said of how it learns
_LOWER_RATE = (
    "{rerun} --warmup-epochs 1 --clip-norm 1    # or a lower --base-lr: it grows with the global batch",
    "{rerun} --precision bf16    # where it was fp16; fp32 says whether it is the precision's fault",
)


@dataclass(frozen=True)
class _Epoch:
    epoch: int
    train: float
    valid: float
    accuracy: float


def is_complete(log: str) -> bool:
    """Whether a log holds all the epochs that its run said it would train for."""
    epochs, planned = _EPOCH.findall(log), _LENGTH.search(log)
    return planned is not None and bool(epochs) and int(epochs[-1][0]) == int(planned[1])


def is_cut_short(log: str) -> bool:
    """Whether a log says for how many epochs its run was to train, and does not hold them all."""
    return _LENGTH.search(log) is not None and not is_complete(log)


def went_wrong(log: str, *, alone: bool) -> Finding | None:
    """A loss that is no number or grows, or an accuracy that stays at chance.

    Args:
        alone: nothing else went wrong; else this is told beside it.
    """
    order = 1 if alone else 8
    epochs = [
        _Epoch(int(one["epoch"]), *(float(one[name]) for name in ("train", "valid", "accuracy")))
        for one in _EPOCH.finditer(log)
    ]
    if not epochs:
        return _of_another_program(log, order)
    last = epochs[-1]
    if not (math.isfinite(last.train) and math.isfinite(last.valid)):
        first = next(one for one in epochs if not (math.isfinite(one.train) and math.isfinite(one.valid)))
        return _not_finite(f"its loss is no finite number since epoch {first.epoch}", order)
    if len(epochs) < _FEW:
        return None
    least = min(one.train for one in epochs)
    if last.train > 1.5 * least and last.train > 1.1 * epochs[0].train:
        return Finding(
            "loss-grows",
            f"The run trained, but its loss grew: {least:.4g} at best, {last.train:.4g} in epoch {last.epoch}.",
            "The rate is too high for this batch, or the gradients are not those of the loss.",
            (*_LOWER_RATE[:1], "lab check 4.0 6.1"),
            order,
        )
    if (classes := _CLASSES.search(log)) is not None and _at_chance(epochs, int(classes[1])):
        return Finding(
            "learned-nothing",
            f"The run trained for {len(epochs)} epochs and learned nothing: accuracy {last.accuracy:.3f} is that "
            f"of "
            f"guessing among {classes[1]} classes.",
            "The weights do not change in the right direction (rate, gradients, optimizer), or the labels are not "
            "those of the images.",
            ("lab check 4.0 4.1 6.1", *_LOWER_RATE[:1]),
            order,
        )
    return None


def _not_finite(what: str, order: int) -> Finding:
    means = (
        "The rate is too high for this batch, numbers are too small or too large for fp16, or the data holds such."
    )
    return Finding("not-finite", f"The run trained, but {what}.", means, _LOWER_RATE, order)


def _at_chance(epochs: Sequence[_Epoch], classes: int) -> bool:
    """Whether no epoch was better than guessing, nor the training loss than that of even odds."""
    if classes < 2:
        return False
    guessing, even = 1 / classes, math.log(classes)
    return max(one.accuracy for one in epochs) <= 1.2 * guessing and min(one.train for one in epochs) > 0.97 * even


def _of_another_program(log: str, order: int) -> Finding | None:
    losses = [one["loss"].lower() for one in _LOSS.finditer(log)]
    if not losses or math.isfinite(_value(losses[-1])) or len(losses) < 2:
        return None
    since = next(at for at in range(len(losses), 0, -1) if at == 1 or math.isfinite(_value(losses[at - 2])))
    what = "every loss that it has printed is no finite number"
    if since > 1:
        what = f"its loss is no finite number since the {ordinal(since)} that it has printed"
    return _not_finite(what, order)


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
