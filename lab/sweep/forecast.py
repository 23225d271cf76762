"""Predictions beside measurements: what `lab predict` prints and draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.sweep.compare import Row
from lab.sweep.plan import BASELINE
from lab.sweep.predict import MACHINE, Measured, Model, Predicted, fit, measurements
from lab.sweep.table import without_measuring
from lab.training.errors import UserError

AIM = 0.15  # how far a prediction may be off
USEFUL = 0.5  # the efficiency under which more devices are mostly wasted
CURVE_TO = 1024


@dataclass(frozen=True)
class Line:
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

    curve     predictions for 1, 2, 4, ... devices
    lines     the predictions that were asked for
    fitted    points that the model knows; `held_out` those that it does not
    breaks    the first count of the curve at which efficiency is under USEFUL; None: it is not on the curve
    node      the most devices that were measured within one node
    """

    machine: tuple[str, ...]
    strategy: str
    scaling: str
    curve: tuple[Predicted, ...]
    lines: tuple[Line, ...]
    fitted: tuple[Measured, ...]
    held_out: tuple[Measured, ...]
    breaks: int | None
    node: int
    doubt: int

    @property
    def title(self) -> str:
        parts = dict(zip(MACHINE, self.machine, strict=True))
        parts["variant"] = without_measuring(parts["variant"])
        what = " on ".join(filter(None, (parts["model"], parts["dataset"])))
        more = (parts["precision"], parts["variant"], "CPU" if parts["device"] == "cpu" else parts["device"])
        return ", ".join(filter(None, (what, *more)))

    @property
    def verdict(self) -> str:
        """Whether the prediction held, or why not."""
        tested = [line for line in self.lines if line.off is not None]
        if not tested:
            return "Nothing was measured there: it stands untested."
        worst = max(tested, key=lambda line: abs(line.off or 0))
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
        if max(point.devices for point in self.fitted) <= self.node < devices:
            return (
                f"{missed}: these devices are on several nodes, and no measurement it knows has crossed a network."
            )
        return (
            f"{missed}, outside its range: something grows in another way than the model has it. Where CPU ranks "
            "share cores, or ranks wait for loaders, it is the work itself that slows down."
        )


def forecast(rows: Sequence[Row], devices: Sequence[int], fit_on: Sequence[int] = ()) -> list[Forecast]:
    """Predict for these numbers of devices.

    Args:
        fit_on: the counts whose measurements the model may know; by default those below the least of `devices`.

    Raises:
        UserError: there is nothing to fit, or a count is none.
    """
    if any(count < 1 for count in (*devices, *fit_on)):
        raise UserError("a number of devices is at least 1")
    known = set(fit_on)
    forecasts, reasons = [], []
    for machine, points in measurements(rows).items():
        used = [p for p in points if (p.devices in known if known else p.devices < min(devices)) or _is_base(p)]
        for strategy in sorted({point.strategy for point in points} - {BASELINE}):
            try:
                model = fit(used, strategy)
            except UserError as error:
                reasons.append(f"{strategy} ({', '.join(filter(None, machine))}): {error}")
                continue
            forecasts += _of_strategy(machine, strategy, model, points, used, devices)
    if not forecasts:
        why = f": {reasons[0]}" if reasons else ": no run in it is done"
        raise UserError(f"nothing can be predicted from these results{why}")
    return forecasts


def _is_base(point: Measured) -> bool:
    return point.strategy == BASELINE and point.devices == 1


def _of_strategy(
    machine: tuple[str, ...],
    strategy: str,
    model: Model,
    points: Sequence[Measured],
    used: Sequence[Measured],
    devices: Sequence[int],
) -> list[Forecast]:
    """A forecast for each scaling, and each batch on one device, that has a baseline."""
    own = [point for point in points if point.strategy == strategy]
    forecasts = []
    for base in filter(_is_base, points):
        work = [point for point in own if point.scaling == base.scaling and _same_work(point, base)]
        if not work:
            continue
        counts = [count for n in range(11) if (count := 2**n) <= min(CURVE_TO, _most(base, devices))]
        counts = sorted({*counts, *(count for count in devices if count <= _most(base, devices))})
        curve = tuple(model.predict(base.scaling, count, base.batch) for count in counts)
        known = {(point.devices, point.batch) for point in used if point.strategy == strategy}
        held_out = tuple(point for point in work if (point.devices, point.batch) not in known)
        measured = {point.devices: point.seconds for point in held_out}
        forecasts.append(
            Forecast(
                machine=machine,
                strategy=strategy,
                scaling=base.scaling,
                curve=curve,
                lines=tuple(Line(p, measured.get(p.devices)) for p in curve if p.devices in devices),
                fitted=tuple(point for point in work if point not in held_out),
                held_out=held_out,
                breaks=next((p.devices for p in curve if p.efficiency[0] < USEFUL), None),
                node=max(point.node for point in points),
                doubt=model.doubt,
            )
        )
    return forecasts


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
    lines.append(f"  fitted on the baseline and {one.strategy} on {', '.join(map(str, known))} device(s)")
    lines.append("  devices   step (ms)   likely between   efficiency   measured (ms)    off")
    for line in one.lines:
        middle, low, high = (1e3 * value for value in line.predicted.seconds)
        between = f"{low:.3g} - {high:.3g}"
        measured = f"{1e3 * line.measured:.4g}" if line.measured is not None else "-"
        off = f"{line.off:+.0%}" if line.off is not None else "-"
        count, efficiency = line.predicted.devices, line.predicted.efficiency[0]
        lines.append(
            f"  {count:>7}   {middle:>9.4g}   {between:>14}   {efficiency:>10.0%}   {measured:>13}   {off:>4}"
        )
    lines.append(f"  {one.verdict}")
    if one.breaks == 1:
        lines.append("  The wrapper alone, on one device, costs more than half.")
    elif one.breaks is not None:
        lines.append(f"  From {one.breaks} devices on, more than half of them is lost.")
    if one.lines and one.lines[-1].predicted.devices > one.node:
        lines.append(f"  Beyond {one.node} it is guesswork: the network between nodes is in no measurement.")
    if one.doubt:
        lines.append("  The measurements do not quite fit the model: they were believed less, the range is wider.")
    return lines


def draw(forecasts: Sequence[Forecast], folder: Path, command: str) -> list[Path]:
    """A figure for each forecast, as PNG and SVG. Raises UserError where they cannot be written."""
    from lab.sweep.forecast_figure import draw as draw_one  # matplotlib takes a second

    return [draw_one(one, folder, command) for one in forecasts]
