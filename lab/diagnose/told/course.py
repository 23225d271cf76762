"""How training went, as a run tells of it: one that is done may have learned nothing, or not what it should."""

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
_AT_STEP = re.compile(r"\b(?:step|iter(?:ation)?|epoch)\b\W{0,4}(?P<step>\d+)", re.I)
_ENOUGH, _LATE, _HARDLY = 8, 100, 0.002  # losses, steps, and the part of a loss in which they all lie
_WRAPPED_LATER = re.compile(r"use_orig_params=False|\bopt\w* = \S*optim\.(?:.*\n){1,4}?.*\bwrap|FSDP|fsdp")
_RATE = re.compile(
    r"\b(?:step|iter\w*)\W{1,3}(?P<step>\d+) ?/ ?(?P<of>\d+).{0,120}?\b(?:lr"
    r"|learning[_ ]rate)\W{1,3}(?P<rate>[\d.]+(?:e-?\d+)?)",
    re.I,
)
_SEVERAL = re.compile(r"\b(?:num_processes|world_size|WORLD_SIZE)\W{1,3}(\d{1,5})\b")
_COPIES = re.compile(
    r"\b(?:checksum|hash|param\w*|weights?)\b.{0,40}?(?P<all>(?:\b(?:r|rank)_?\d+ ?[=:] ?[-\d.e]+[ ,;]*){2,})",
    re.I,
)
_COPY = re.compile(r"(?:r|rank)_?(\d+) ?[=:] ?([-\d.e]+)", re.I)
_PAST_DDP = re.compile(r"^.*\b(?:model|ddp\w*|net)\.module\b.*$", re.M)
_OF_ANOTHER = re.compile(
    r"^\W{0,4}(?:\[[^\]]{0,30}\]\W{0,3}|\w{1,8}: )?\("
)  # "(with ddp: ...)", of a run beside it
_FEW = 3  # epochs, before which nothing can be said of how it learns
LOWER_RATE = (
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
        return next(
            filter(None, (one(log, order) for one in (_of_another_program, _stands_still, _rate_ended, _drifted))),
            None,
        )
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
            (*LOWER_RATE[:1], "lab check 4.0 6.1"),
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
            ("lab check 4.0 4.1 6.1", *LOWER_RATE[:1]),
            order,
        )
    return None


def _not_finite(what: str, order: int) -> Finding:
    means = (
        "The rate is too high for this batch, numbers are too small or too large for fp16, or the data holds such."
    )
    return Finding("not-finite", f"The run trained, but {what}.", means, LOWER_RATE, order)


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


def _stands_still(log: str, order: int) -> Finding | None:
    """Losses that are all alike from the first step on."""
    lines = [
        line
        for line in log.splitlines()
        if _LOSS.search(line) and _AT_STEP.search(line) and not _OF_ANOTHER.match(line)
    ]
    losses = [_value(_LOSS.findall(line)[0]) for line in lines]
    steps = [int(said["step"]) for line in lines if (said := _AT_STEP.search(line))]
    if len(losses) < _ENOUGH or steps[0] > 1 or max(steps) < _LATE:
        return None
    if not all(math.isfinite(loss) for loss in losses) or min(losses) <= 0:
        return None
    if max(losses) - min(losses) > _HARDLY * min(losses):
        return None
    classes = round(math.exp(min(losses[0], 20.0)))
    sharded = "FSDP puts other parameters in place of them: an optimizer that was made before holds the old ones. "
    return Finding(
        "learned-nothing",
        f"The run trained to step {max(steps)}, and its loss never moved: {losses[0]:.5g} at first, "
        f"{losses[-1]:.5g} at "
        f"last, as of guessing among {classes:,}.",
        f"The weights do not change: the optimizer does not hold them, its rate is 0, or no gradient comes to "
        f"them. "
        f"{sharded if _WRAPPED_LATER.search(log) else ''}It is no matter of the rate's size or of the data.",
        (
            "grep -n -E 'optim|wrap|FSDP|DistributedData|[.]to\\(' *.py exercises/*.py    # wrap first, then "
            "the optimizer",
            "lab check 5.1 4.0",
        ),
        order,
    )


def _rate_ended(log: str, order: int) -> Finding | None:
    """A schedule that several processes stepped: it was over after one part of the steps in as many as there "
    "were."""
    said = [(int(one["step"]), int(one["of"]), _value(one["rate"])) for one in _RATE.finditer(log)]
    several = max((int(number) for number in _SEVERAL.findall(log)), default=1)
    if len(said) < _ENOUGH or several < 2:
        return None
    last = said[-1][2]
    flat = len(said)
    while flat and said[flat - 1][2] == last:
        flat -= 1
    if flat == len(said) or len(said) - flat < _FEW or not 0 < last < 0.2 * said[0][2]:
        return None
    step, steps, _ = said[flat]
    before = said[flat - 1][0] if flat else 0
    if not before <= steps / several <= step:
        return None
    return Finding(
        "rate-ended-early",
        f"The rate came to its end, {last:g}, by step {step} of {steps}, and stayed there; there are {several} "
        f"processes.",
        f"Each call stepped the schedule {several} times: accelerate does so with one that prepare() was given, "
        f"which "
        "counts the batches of all processes. The data, the precision and the number of GPUs are not to blame.",
        (
            "grep -n -E 'prepare\\(|Scheduler|LR\\(|total_iters|sched' *.py    # its steps times the number of "
            "processes; "
            "or not handed to prepare()",
        ),
        order,
    )


def _drifted(log: str, order: int) -> Finding | None:
    """Copies of the network that DDP is to keep alike, and that a log shows to differ."""
    if "DistributedDataParallel" not in log and "DDP" not in log:
        return None
    differing = [
        one for one in _COPIES.finditer(log) if len({value for _, value in _COPY.findall(one["all"])}) > 1
    ]
    if len(differing) < 2:
        return None
    past = _PAST_DDP.search(log)
    by = f" The log shows such a line: {past[0].strip()[:120]}." if past else ""
    return Finding(
        "replicas-differ",
        f"The ranks' copies of the network are not alike: {differing[-1][0].strip()}.",
        "Their gradients are not averaged: DDP does that only in a forward pass that goes through it, not through "
        f"model.module, and not below no_sync().{by} What was saved is one rank's copy.",
        (
            "grep -n -E '[.]module|no_sync' *.py exercises/*.py    # train with the wrapped model",
            "lab check 5.1 6.1",
        ),
        order,
    )


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
