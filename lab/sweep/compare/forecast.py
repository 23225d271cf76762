"""Predictions beside measurements: what `lab predict` prints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lab.base.errors import UserError
from lab.base.words import digits
from lab.sweep.compare.columns import BASELINE
from lab.sweep.compare.predict import (
    BESIDE_COMPUTE,
    BEYOND,
    MACHINE,
    Measured,
    Model,
    Predicted,
    Talk,
    fit,
    measurements,
    too_many,
)
from lab.sweep.compare.table import describe_work, distinct, without_measuring

AIM = 0.15  # how far a prediction may be off
USEFUL = 0.5  # the efficiency under which more devices are mostly wasted
CURVE_TO = 1024
Talks = Callable[[Mapping[str, str], str], Talk | None]  # of a machine and a strategy


@dataclass(frozen=True)
class Outcome:
    """One prediction, and what was measured there if anything was."""

    predicted: Predicted
    measured: float | None

    @property
    def off(self) -> float | None:
        """How far the prediction is off, as a fraction of what was measured."""
        return None if self.measured is None else self.predicted.seconds[0] / self.measured - 1


@dataclass(frozen=True)
class Forecast:
    """One strategy with one scaling on one machine.

    title     the machine: what was trained, and on what
    curve     predictions for 1, 2, 4, ... devices
    outcomes  the predictions that were asked for, at least one
    too_many  what was asked for and leaves a device no image; `too_far` what is too far from all that was measured
    known_to  the most devices with this strategy that the model knows
    fitted    points that the model knows; `held_out` those that it does not
    breaks    the first count of the curve at which efficiency is under USEFUL; None: it is not on the curve
    node      the most devices that were measured within one node
    talk      what a bandwidth.csv said of the links
    """

    title: str
    strategy: str
    scaling: str
    curve: tuple[Predicted, ...]
    outcomes: tuple[Outcome, ...]
    too_many: tuple[int, ...]
    too_far: tuple[int, ...]
    known_to: int
    fitted: tuple[Measured, ...]
    held_out: tuple[Measured, ...]
    breaks: int | None
    node: int
    doubt: int
    talk: Talk | None = None

    @property
    def verdict(self) -> str:
        """Whether the prediction held, or why not."""
        tested = [one for one in self.outcomes if one.off is not None]
        if not tested:
            return "Nothing was measured there: it stands untested."
        worst = max(tested, key=lambda one: abs(one.off or 0))
        off, devices = worst.off or 0, worst.predicted.devices
        if abs(off) <= AIM:
            return f"Within {AIM:.0%} of what was measured (worst: {off:+.0%} on {devices} devices)."
        _, low, high = worst.predicted.seconds
        measured = worst.measured or 0
        missed = f"Off by {off:+.0%} on {devices} devices"
        if low <= measured <= high:
            return (
                f"{missed}, but inside its own range: so few points cannot tell what a message costs from what "
                "a byte costs. A point on more devices would."
            )
        if max((point.devices for point in self.fitted), default=0) <= self.node < devices:
            return (
                f"{missed}: these devices are on several nodes, and no measurement it knows has crossed a network."
            )
        return (
            f"{missed}, outside its range: something grows in another way than the model has it. Where CPU ranks "
            "share cores, or ranks wait for loaders, it is the work itself that slows down."
        )


def forecast(
    runs: pd.DataFrame, devices: Sequence[int], fit_on: Sequence[int] = (), talks: Talks | None = None
) -> tuple[list[Forecast], list[str]]:
    """Predict for these numbers of devices. Also returns a sentence for all that was measured and not predicted.

    Args:
        fit_on: the counts whose measurements the model may know; by default those below the least of `devices`.
        talks: what was measured of the links, where it was.

    Raises:
        UserError: there is nothing to fit, or a count is none.
    """
    if any(count < 1 for count in (*devices, *fit_on)):
        raise UserError("a number of devices is at least 1")
    known = set(fit_on)
    forecasts: list[Forecast] = []
    left_out: list[str] = []
    machines = measurements(runs)
    titles = distinct({machine: (_title(machine), _title(machine, whole=True)) for machine in machines})
    for machine, points in machines.items():
        used = [p for p in points if (p.devices in known if known else p.devices < min(devices)) or _is_base(p)]
        for strategy in sorted({point.strategy for point in points} - {BASELINE}):
            talk = talks(dict(zip(MACHINE, machine, strict=True)), strategy) if talks else None
            try:
                model = fit(used, strategy, talk=talk)
            except UserError as error:
                left_out.append(f"{strategy} ({titles[machine]}): {error}")
                continue
            found, why_not = _of_strategy(titles[machine], strategy, model, points, used, devices)
            forecasts += [replace(one, talk=talk) for one in found]
            left_out += why_not
    if not forecasts:
        nothing = "only its baseline is done" if machines else "no run in it is done"
        raise UserError(f"nothing can be predicted from these results: {left_out[0] if left_out else nothing}")
    return forecasts, left_out


def _title(machine: tuple[str, ...], whole: bool = False) -> str:
    """`resnet18 on shapes, bf16, A card`; `whole`: with the input, and how long was measured."""
    parts = dict(zip(MACHINE, machine, strict=True))
    short = {"input": "", "variant": without_measuring(parts["variant"])}
    return describe_work(parts if whole else parts | short)


def _is_base(point: Measured) -> bool:
    return point.strategy == BASELINE and point.devices == 1


def _of_strategy(
    title: str,
    strategy: str,
    model: Model,
    points: Sequence[Measured],
    used: Sequence[Measured],
    devices: Sequence[int],
) -> tuple[list[Forecast], list[str]]:
    """A forecast for each scaling, and each batch on one device, with a baseline; a sentence for each other."""
    own = [point for point in points if point.strategy == strategy]
    forecasts, left_out = [], []
    for scaling in sorted(
        {point.scaling for point in own} - {point.scaling for point in filter(_is_base, points)}
    ):
        no_base = f"there is no finished run of --strategy {BASELINE} on 1 device with this scaling"
        left_out.append(f"{strategy}, {scaling} scaling ({title}): {no_base}")
    for base in filter(_is_base, points):
        work = [point for point in own if point.scaling == base.scaling and _same_work(point, base)]
        if not work:
            continue
        most, known_to = _most(base, devices), max(point.devices for point in used if point.strategy == strategy)
        far = tuple(sorted(count for count in set(devices) if BEYOND * known_to < count <= most))
        most = min(most, BEYOND * known_to)
        asked = sorted({count for count in devices if count <= most})
        if not asked:
            why = too_far(min(far), known_to) if far else too_many(base.batch, min(devices))
            left_out.append(f"{strategy}, {base.scaling} scaling ({title}): {why}")
            continue
        counts = sorted({*(count for n in range(11) if (count := 2**n) <= min(CURVE_TO, most)), *asked})
        curve = tuple(model.predict(base.scaling, count, base.batch) for count in counts)
        known = {(point.devices, point.batch) for point in used if point.strategy == strategy}
        held_out = tuple(point for point in work if (point.devices, point.batch) not in known)
        measured = {point.devices: point.seconds for point in held_out}
        forecasts.append(
            Forecast(
                title=title,
                strategy=strategy,
                scaling=base.scaling,
                curve=curve,
                outcomes=tuple(Outcome(p, measured.get(p.devices)) for p in curve if p.devices in devices),
                too_many=tuple(sorted(set(devices) - {*asked, *far})),
                too_far=far,
                known_to=known_to,
                fitted=tuple(point for point in work if point not in held_out),
                held_out=held_out,
                breaks=next((p.devices for p in curve if p.efficiency[0] < USEFUL), None),
                node=max(point.node for point in points),
                doubt=model.doubt,
            )
        )
    return forecasts, left_out


def too_far(devices: int, known_to: int) -> str:
    """The sentence for a count of which the measurements say nothing."""
    return (
        f"{devices} devices are more than {BEYOND} times the {known_to} that were measured: no number would be "
        f"honest; measure on {-(-devices // BEYOND)}, and predict from there"
    )


def _same_work(point: Measured, base: Measured) -> bool:
    if base.scaling == "strong":
        return point.batch == base.batch // point.devices
    return point.batch == base.batch


def _most(base: Measured, devices: Sequence[int]) -> int:
    """The largest count to draw: twice what was asked for, as far as every device has an image."""
    return min(2 * max(devices), base.batch) if base.scaling == "strong" else 2 * max(devices)


def table(one: Forecast) -> list[str]:
    """Lines for a terminal."""
    lines = [f"{one.strategy}, {one.scaling} scaling: {one.title}"]
    known = sorted({point.devices for point in one.fitted})
    if known:
        lines.append(f"  fitted on the baseline and {one.strategy} on {', '.join(map(str, known))} device(s)")
    else:
        lines.append(
            f"  fitted on the baseline and other batches of {one.strategy}: none of these was known to it"
        )
    if one.talk is not None:
        lines.append(
            f"  links as measured alone on {one.talk.ranks} ranks: {digits(1e3 * one.talk.latency, 3)} ms for "
            f"each more device,\n  {digits(1e3 * one.talk.bytes, 3)} ms (N - 1) / N for the bytes; beside "
            f"computing up to {BESIDE_COMPUTE:g} times that"
        )
    lines.append("  devices   step (ms)   likely between   efficiency   measured (ms)    off")
    for outcome in one.outcomes:
        middle, low, high = (1e3 * value for value in outcome.predicted.seconds)
        between = f"{digits(low, 3)} - {digits(high, 3)}"
        measured = digits(1e3 * outcome.measured, 4) if outcome.measured is not None else "-"
        off = f"{outcome.off:+.0%}" if outcome.off is not None else "-"
        count, efficiency = outcome.predicted.devices, outcome.predicted.efficiency[0]
        step = digits(middle, 4)
        lines.append(f"  {count:>7}   {step:>9}   {between:>14}   {efficiency:>10.0%}   {measured:>13}   {off:>4}")
    batch_on_one = one.curve[0].batch
    lines += [f"  {count:>7}   {too_many(batch_on_one, count)}" for count in one.too_many]
    lines += [f"  {count:>7}   {too_far(count, one.known_to)}" for count in one.too_far]
    lines.append(f"  {one.verdict}")
    if one.breaks == 1:
        lines.append("  The wrapper alone, on one device, costs more than half.")
    elif one.breaks is not None:
        lines.append(f"  From {one.breaks} devices on, more than half of them is lost.")
    if one.outcomes[-1].predicted.devices > one.node:
        lines.append(f"  Beyond {one.node} it is guesswork: the network between nodes is in no measurement.")
    if one.doubt:
        lines.append("  The measurements do not quite fit the model: they were believed less, the range is wider.")
    return lines
