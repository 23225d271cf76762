"""The plan as text, 80 columns wide."""

import textwrap

from lab.base.words import digits
from lab.plan.plan import GIB, Plan, Row
from lab.plan.timing import HOUR, Range

COLUMNS = 80
UNITS = ((2**40, "TiB"), (GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def table(plan: Plan) -> list[str]:
    """Lines for a terminal."""
    network = plan.network
    # MiB where a GiB is much: every layout in the same unit, so that columns can be compared.
    scale, unit = (GIB, "GiB") if max(row.memory.total for row in plan.rows) >= 10 * GIB else (2**20, "MiB")
    gflops = digits(network.flops / 1e9, 3)
    size = f", width {network.width}, depth {len(network.blocks)}" if network.width else ""
    lines = [
        f"{network.name}{size}: {network.parameters:,} parameters, {network.precision}",
        f"{plan.gpus} x {plan.card.name}, {plan.memory:g} GiB each, {plan.node} in a node;",
        f"{plan.batch} images a device, {plan.global_batch:,} in a step, {gflops} GFLOP each",
        "",
        f"{unit} a device         fits  weights   grads   optim  activ. working    total",
        *(_memory(row, scale) for row in plan.rows),
        "",
        "sent in a step by a device     in its node   between nodes   talking (ms)",
        *(_sent(row) for row in plan.rows),
        "",
        "a step (ms)              likely            between     efficiency   between",
        *(_time(row) for row in plan.rows),
    ]
    if any(row.gpu_hours for row in plan.rows):
        lines += ["", "GPU-hours                likely            between"]
        lines += [f"{row.layout.name:<19}{_range(row.gpu_hours)}" for row in plan.rows if row.gpu_hours]
    lines += ["", *(_wrapped(f"{kind}: {why}.") for kind, why in plan.why_not.items())]
    lines += [_wrapped(note) for note in plan.notes]
    if plan.saving is not None:
        one = plan.saving
        lines.append(
            _wrapped(
                f"Checkpoints of {amount(one.bytes)} take {duration(one.write)} to write: save every "
                f"{duration(one.interval)} (Daly 2006); with failures that costs {one.lost:.1%} of the time."
            )
        )
    return [line for n, line in enumerate(lines) if line or lines[n - 1]]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent="  ")


def _memory(row: Row, scale: int) -> str:
    held = row.memory
    parts = (held.parameters, held.gradients, held.optimizer, held.activations, held.working, held.total)
    cells = (f"{value / scale:.2f}" if value < 10 * scale else f"{value / scale:,.1f}" for value in parts)
    widths = (9, 8, 8, 8, 8, 9)
    text = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{row.layout.name:<20} {row.fits:<5}{text}"


def _sent(row: Row) -> str:
    talking = row.step.communication
    between = f"{digits(1e3 * talking.best, 2)} - {digits(1e3 * talking.worst, 2)}"
    return f"{row.layout.name:<27}{amount(row.inside):>15}{amount(row.between):>16}{between:>16}"


def _time(row: Row) -> str:
    step, share = row.step.seconds, row.step.efficiency
    measured = "*" if row.predicted else " "
    low, high = sorted((share.best, share.worst))
    return (
        f"{row.layout.name:<19}{_range(step, 1e3)}{measured}{share.middle:>13.0%}{f'{low:.0%} - {high:.0%}':>13}"
    )


def _range(value: Range, factor: float = 1.0) -> str:
    between = f"{digits(factor * value.best, 3)} - {digits(factor * value.worst, 3)}"
    return f"{digits(factor * value.middle, 3):>12}{between:>19}"


def amount(count: float) -> str:
    """Bytes for people."""
    for size, unit in UNITS:
        if count >= size:
            return f"{digits(count / size, 3)} {unit}"
    return f"{count:.0f} B" if count else "-"


def duration(seconds: float) -> str:
    """For people."""
    if seconds >= HOUR:
        return f"{digits(seconds / HOUR, 2)} h"
    return f"{digits(seconds / 60, 2)} min" if seconds >= 60 else f"{digits(seconds, 2)} s"
