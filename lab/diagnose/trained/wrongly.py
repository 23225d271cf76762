"""Runs that came to their end and trained wrongly, as far as their lines show it. A sound run has no finding."""

import math
import re
from collections import defaultdict

from lab.base.words import rank_list
from lab.diagnose.told import course
from lab.diagnose.told.finding import Finding
from lab.diagnose.trained import passed_over
from lab.diagnose.trained.steps import Told, finest, is_exact_zero, told, value

_FEW, _PART = 3, 0.1  # lines, and the part of all steps, from which on something is no chance
_ACCUMULATES = re.compile(r"\b(?:grad\w*[_ ]?)?accum\w*\W{1,3}(\d{1,5})\b", re.I)
_SEVERAL = re.compile(r"\b(?:num_processes|world_size|world|WORLD_SIZE)\W{1,3}(\d{1,5})\b")
_DATA_PARALLEL = re.compile(r"\bddp\b|DistributedDataParallel|data[- _]parallel|horovod", re.I)
_OTHERWISE = re.compile(  # ranks that need not be alike
    r"fsdp|fully_shard|zero|deepspeed|tensor[- _]parallel|pipeline|\btp\W{1,2}\d|\bpp\W{1,2}\d|local[- _]?sgd"
    r"|diloco"
    r"|federated|fedavg|gossip|expert[- _]parallel",
    re.I,
)
_OF_A_PART = re.compile(r"micro|local|unsync|before (?:sync|all)|shard", re.I)
_REWARDS = re.compile(r"reward|advantage|\bkl\b|grpo|ppo", re.I)
_NEVER_FILLED = re.compile(r"\bmeta\b|to_empty|sync_module_states|broadcast|full state|buffers?\b", re.I)
_BF16_WEIGHTS = re.compile(
    r"param\w*[ _.]{1,3}dtype\W{1,3}(?:torch\.)?b(?:f|float)16|\bdtype\W{1,3}b(?:f|float)16 (?:params|weights)"
    r"|\bpure[ _-]bf16|(?:weights|params|model) in (?:torch\.)?b(?:f|float)16",
    re.I,
)
_KEPT_FINE = re.compile(r"master|stochastic|kahan|fp32 (?:copy|weights)|autocast|MixedPrecision", re.I)
_TINY, _STILL = 5e-6, 0.01  # a rate that bfloat16 rounds away; the part of a loss by which it then moves
_AT_FIRST = "In the first step"
_A_TRUTH = ("loss-zero", "rate-ended-early")


def went_wrong(log: str, *, alone: bool) -> Finding | None:
    """As told.course.went_wrong, and what the lines of the steps show besides.

    Args:
        alone: nothing else went wrong; else this is told beside it.
    """
    order = 1 if alone else 8
    lines = told(log)
    first = _nan_on_some(lines, log, order)
    if first or (first := course.went_wrong(log, alone=alone)):
        return first
    for one in (_no_loss, _no_rate, _ranks_apart, _rounded_away):
        if (found := one(lines, log, order)) is not None:
            return found
    return passed_over.keys(log, order) or (passed_over.recompiled(log, order) if alone else None)


def before_it_was_stopped(finding: Finding, stopped: str) -> bool:
    """Whether training was wrong before somebody, the time limit or the program itself ended the run."""
    if finding.name == stopped == "not-finite":
        return finding.saw.startswith(_AT_FIRST)
    by = ("cancelled", "time-limit", "keyboard", "hung-up", "interrupted")
    return stopped in by and finding.name in _A_TRUTH


def _nan_on_some(lines: list[Told], log: str, order: int) -> Finding | None:
    """A first step whose loss is a number on some ranks, and none on others."""
    ranked = [one for one in lines if one.rank >= 0 and one.loss and one.step >= 0]
    first = min((one.step for one in ranked), default=-1)
    at_first = {one.rank: one.loss for one in reversed(ranked) if one.step == first}
    bad = sorted(rank for rank, loss in at_first.items() if not math.isfinite(value(loss)))
    good = sorted(set(at_first) - set(bad))
    if not bad or not good or first > 1:
        return None
    filled = (
        "Likeliest are parameters or buffers that were never filled there: what is not in the state dict "
        "(buffers with persistent=False, such as inv_freq) stays whatever to_empty() has found in memory. "
        if _NEVER_FILLED.search(log)
        else "Likeliest are parameters or buffers that only one rank has loaded, or that rank's part of the data. "
    )
    return Finding(
        "not-finite",
        f"{_AT_FIRST}, {first}, the loss of {rank_list(bad)} is no finite number, that of "
        f"{rank_list(good)} is {at_first[good[0]]}.",
        f"Nothing was trained by then: the ranks began with different values. {filled}The rate and the "
        "precision are not to blame.",
        (
            "grep -n -E 'meta|to_empty|persistent=False|register_buffer|broadcast' *.py    # fill buffers anew, "
            "or broadcast them from rank 0",
            "for n, b in [*model.named_buffers(), *model.named_parameters()]: print(rank, n, "
            "b.isfinite().all())    # before the first step, on each rank",
        ),
        order,
    )


def _no_loss(lines: list[Told], log: str, order: int) -> Finding | None:
    """A loss of exactly 0 with gradients of exactly 0 until the end, after it was none."""
    lines = [one for one in lines if one.loss and one.norm and one.rank <= 0]
    losses = [one.loss for one in lines]
    at = len(lines)
    while at and value(lines[at - 1].loss) == 0 and not 0 < value(lines[at - 1].norm) < math.inf:
        at -= 1
    if not at or len(lines) - at < _FEW or not all(is_exact_zero(one, losses) for one in losses[at:]):
        return None
    before, norms = value(losses[at - 1]), [one.norm for one in lines[at:]]
    if not before > 100 * finest(losses[:at]) or before < 0.01 or _REWARDS.search(lines[at].line):
        return None
    if any(not math.isfinite(value(norm)) for norm in norms):
        return Finding(
            "not-finite",
            f"Since step {lines[at].step} the loss is exactly 0 and the norm of the gradients is no number; "
            f"before, the loss was {losses[at - 1]}.",
            "A loss that is nan is shown as 0 by some trainers: the weights are no numbers any more.",
            course.LOWER_RATE,
            order,
        )
    return Finding(
        "loss-zero",
        f"Since step {lines[at].step} the loss and the norm of the gradients are exactly 0; before, the loss "
        f"was {losses[at - 1]}.",
        "No network learns that well: nothing counts in the loss any more. Likeliest are targets that are all "
        "masked (ignore_index, a mask of zeros), as by a cached mask that is changed in place, or batches that "
        "came out empty.",
        (
            "print((labels != -100).sum(), loss_mask.sum())    # of a batch, on each rank: how many targets "
            "count?",
            "grep -n -E 'ignore_index|-100|mask' *.py    # is one kept and changed? .clone() before",
        ),
        order,
    )


def _no_rate(lines: list[Told], log: str, order: int) -> Finding | None:
    """A rate that is 0 long before the last step, and stays it."""
    lines = [one for one in lines if one.rate and one.rank <= 0]
    rates = [one.rate for one in lines]
    at = len(lines)
    while at and value(rates[at - 1]) == 0:
        at -= 1
    if len(lines) - at < _FEW or not all(is_exact_zero(one, rates) for one in rates[at:]):
        return None
    since, last = lines[at].step, lines[-1].step
    if last - since < _PART * max(last, lines[-1].of):
        return None
    if not at:
        return Finding(
            "learned-nothing",
            f"The rate is 0 in every step that the log tells of, from {since} to {last}.",
            "With a rate of 0 no weight changes: a warm-up that is longer than the run, a schedule that was "
            "never stepped, or one that came out of a checkpoint at its end.",
            ("grep -n -E 'LR\\(|[Ss]cheduler|warm' *.py    # its steps, and where step() stands",),
            order,
        )
    over = (value(str(last)) / since) if since else 0.0
    parts = {int(one) for one in _ACCUMULATES.findall(log)} - {0, 1}
    ranks = {int(one) for one in _SEVERAL.findall(log)} - {0, 1}
    near = lines[at - 1].step

    def fits(times: int) -> bool:
        return near <= max(last, lines[-1].of) / times <= since

    if (times := next(filter(fits, sorted(parts)), 0)) != 0:
        means = (
            f"Likeliest it was stepped in each of the {times} batches that are accumulated for one step: then "
            f"it is over after one part in {times}. step() of the schedule belongs beside that of the optimizer."
        )
    elif (times := next(filter(fits, sorted(ranks)), 0)) != 0:
        means = (
            f"Likeliest it was stepped {times} times in a step, once for each of the {times} processes, as a "
            "schedule is that accelerate's prepare() was given."
        )
    else:
        means = (
            f"The schedule is shorter than the run{f', by {over:.3g} times' if over >= 1.2 else ''}: it was "
            "made for fewer steps (of one epoch, of a larger batch), or is stepped more often than the "
            "optimizer."
        )
    return Finding(
        "rate-ended-early",
        f"The rate is 0 since step {since} of {max(last, lines[-1].of)}, and stays it: nothing was learned "
        "after that.",
        f"{means} The data and the height of the rate are not to blame.",
        (
            "grep -n -E '[Ss]chedul|LR\\(|accum|max_steps|total_steps' *.py    # how many steps, and where is "
            "step() called?",
        ),
        order,
    )


def _ranks_apart(lines: list[Told], log: str, order: int) -> Finding | None:
    """Gradients or weights that DDP keeps alike, and that differ from rank to rank."""
    if not _DATA_PARALLEL.search(log) or _OTHERWISE.search(log):
        return None
    norms: dict[int, dict[int, str]] = defaultdict(dict)
    sums: dict[int, dict[int, str]] = defaultdict(dict)
    for one in lines:
        if one.rank < 0 or _OF_A_PART.search(one.line):
            continue
        if one.norm and one.step >= 0:
            norms[one.step].setdefault(one.rank, one.norm)
        if one.weights and one.step >= 0:
            sums[one.step].setdefault(one.rank, one.weights)
    apart = {step: of for step, of in norms.items() if _differ(of, 0.01)}
    weights = {step: of for step, of in sums.items() if _differ(of, 1e-6)}
    several = [step for step, of in norms.items() if len(of) > 1]
    if len(apart) >= _FEW and len(apart) >= 0.8 * len(several):
        step, of, what = max(apart), apart[max(apart)], "norm of the gradients"
    elif len(weights) >= 2:
        step, of, what = max(weights), weights[max(weights)], "sum of the weights"
    else:
        return None
    parts = ", ".join(f"rank {rank}: {said}" for rank, said in sorted(of.items())[:4])
    after = f", in {len(apart)} of {len(several)} steps" if what.startswith("norm") else ""
    accumulates = re.search(r"no_sync|accum", log)
    likeliest = (
        "Likeliest is no_sync(): the last batch that is accumulated, before the optimizer's step, must stand "
        "outside of it, forward pass and backward pass; an index that is off by one leaves out the wrong one."
        if accumulates
        else "Likeliest is a forward pass past DDP (model.module(...), a method of it), or no_sync()."
    )
    return Finding(
        "replicas-differ",
        f"The {what} differs from rank to rank (step {step}, {parts}){after}.",
        "DDP makes gradients alike on all ranks before the step: these were not, and each rank trains a "
        f"network of its own. {likeliest}",
        (
            "grep -n -E 'no_sync|[.]module|accum' *.py exercises/*.py    # (i + 1) % accumulate == 0: with "
            "synchronisation",
            "lab check 4.1 6.1",
        ),
        order,
    )


def _differ(of: dict[int, str], part: float) -> bool:
    numbers = [value(one) for one in of.values()]
    if not all(map(math.isfinite, numbers)):
        return False
    return len(numbers) > 1 and max(numbers) - min(numbers) > part * max(map(abs, numbers))


def _rounded_away(lines: list[Told], log: str, order: int) -> Finding | None:
    """Weights that are kept in bfloat16, a tiny rate, and a loss that hardly moves."""
    lines = [one for one in lines if one.loss and one.rate and one.rank <= 0]
    losses = [value(one.loss) for one in lines]
    rate = max((value(one.rate) for one in lines), default=1.0)
    if len(lines) < 5 or lines[-1].step < 100 or not rate <= _TINY or not all(map(math.isfinite, losses)):
        return None
    if (
        not _BF16_WEIGHTS.search(log)
        or _KEPT_FINE.search(log)
        or not 0 <= losses[0] - losses[-1] < _STILL * losses[0]
    ):
        return None
    return Finding(
        "learned-nothing",
        f"The loss hardly moved, {lines[0].loss} at first and {lines[-1].loss} at last; the weights are kept in "
        f"bfloat16, and the rate is {rate:g} at most.",
        "Likeliest each step is rounded away: bfloat16 has 8 bits, and a change of less than 1 in 500 of a "
        "weight leaves it as it was. The data, the clipping and the optimizer are then not to blame.",
        (
            "grep -n -E 'bfloat16|bf16|dtype' *.py    # weights in float32, computed in bfloat16: "
            "MixedPrecisionPolicy, autocast",
            "before = w.clone() ; optimizer.step() ; print((w != before).float().mean())    # how many weights "
            "change?",
        ),
        order,
    )
