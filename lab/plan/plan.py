"""The plan: each layout with its memory, traffic, time and cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab.base.words import digits
from lab.plan.hardware import GB, Card
from lab.plan.layout import PP, TP, Layout, layouts
from lab.plan.links import Links, said
from lab.plan.measured import Constants
from lab.plan.memory import STATE, WIDE, Memory, filled, memory
from lab.plan.network import Network
from lab.plan.timing import HOUR, Range, Step, compute_seconds, daly, launch_seconds, lost_share, step
from lab.plan.traffic import Traffic, traffic

GIB = 2**30
FULL = 0.9  # of a device's memory: what is planned may be off by a tenth
FILLING = 0.05  # of what FSDP gathers: from there on it is said
FITS, TIGHT, TOO_LARGE = "yes", "tight", "no"


@dataclass(frozen=True)
class Row:
    """One layout. `gpu_hours` of the whole training, where its length was asked for."""

    layout: Layout
    memory: Memory
    fits: str
    traffic: tuple[Traffic, ...]
    step: Step
    predicted: bool  # the step is of measurements
    gpu_hours: Range | None

    @property
    def inside(self) -> float:
        return sum(one.inside for one in self.traffic)

    @property
    def between(self) -> float:
        return sum(one.between for one in self.traffic)


@dataclass(frozen=True)
class Saving:
    """Checkpoints: seconds to write one, seconds of work between two, and the share of the time that is lost."""

    bytes: float
    write: float
    interval: float
    lost: float


@dataclass(frozen=True)
class Plan:
    network: Network
    card: Card
    gpus: int
    node: int
    batch: int
    memory: float  # GiB of a device
    rows: tuple[Row, ...]
    why_not: dict[str, str]
    notes: tuple[str, ...]
    saving: Saving | None

    @property
    def global_batch(self) -> int:
        return self.gpus * self.batch


def make_plan(
    network: Network,
    card: Card,
    *,
    gpus: int,
    node: int,
    batch: int,
    memory_gib: float,
    between: str,
    optimizer: str,
    checkpoint: bool = False,
    images: float | None = None,
    mtbf: float | None = None,
    disk: float = 10.0,
    measured: Constants | None = None,
    links: Links | None = None,
) -> Plan:
    """Plan every layout of these devices.

    Args:
        batch: images a device.
        between: the network between nodes, one of hardware.NETWORKS.
        images: of the whole training.
        mtbf: hours between failures of all devices together.
        disk: GB/s at which a checkpoint is written.
        links: what was measured of the links.
    """
    found, why = layouts(network, gpus, node, batch)
    alone = measured.alone if measured else compute_seconds(network, batch, card, checkpoint=checkpoint)
    rows = []
    for layout in found:
        held, sent = memory(network, layout, optimizer, checkpoint=checkpoint), tuple(traffic(network, layout))
        told = measured.steps.get(layout.kind) if measured else None
        took = step(layout, sent, alone, card, between, links)
        if told is not None:
            best, middle, worst = (
                min(1.0, alone.middle / value) for value in (told.best, told.middle, told.worst)
            )
            took = Step(told, Range(best, middle, worst), took.communication)
        share = held.total / (memory_gib * GIB)
        fits = FITS if share <= FULL else TIGHT if share <= 1 else TOO_LARGE
        hours = None if images is None else took.seconds.scaled(images / (gpus * batch) * gpus / HOUR)
        rows.append(Row(layout, held, fits, sent, took, told is not None, hours))
    saving = None
    if mtbf is not None:
        size = float((WIDE + STATE[optimizer]) * network.parameters)
        write = size / (disk * GB)
        interval = daly(write, mtbf * HOUR)
        saving = Saving(size, write, interval, lost_share(write, interval, mtbf * HOUR))
    kept = _least(rows)
    about_links = said(links, [one for row in kept for one in row.traffic]) if links else []
    return Plan(
        network,
        card,
        gpus,
        node,
        batch,
        memory_gib,
        tuple(kept),
        why,
        (*_nothing_fits(kept, memory_gib, checkpoint), *_notes(measured, network, gpus, checkpoint), *about_links),
        saving,
    )


def _least(rows: Sequence[Row]) -> list[Row]:
    """Of the tensor parallel layouts and of the pipelines one each: the least split that fits, else the most
    split."""
    kept = [row for row in rows if row.layout.kind not in (TP, PP)]
    for kind in (TP, PP):
        own = [row for row in rows if row.layout.kind == kind]
        for wanted in (FITS, TIGHT):
            if first := next((row for row in own if row.fits == wanted), None):
                own = [first]
                break
        kept += own[-1:] if own and own[-1].fits == TOO_LARGE else own[:1]
    return kept


def _nothing_fits(rows: Sequence[Row], memory_gib: float, checkpoint: bool) -> list[str]:
    if any(row.fits != TOO_LARGE for row in rows):
        return []
    least = min(rows, key=lambda row: row.memory.total)
    again = "" if checkpoint else "--checkpoint-activations, "
    return [
        f"Nothing fits into {memory_gib:g} GiB: {least.layout.name} needs the least, "
        f"{digits(least.memory.total / GIB, 3)} GiB. Try fewer images a device, {again}more --gpus or another "
        "--card."
    ]


def _notes(measured: Constants | None, network: Network, gpus: int, checkpoint: bool) -> tuple[str, ...]:
    notes = []
    if measured is None:
        notes.append(
            "Speed is of data sheets, each operator at 25 to 80% of the card's peak or 20 to 90% of its memory's "
            "bandwidth: nothing was measured (--results)."
        )
        least = launch_seconds(network, checkpoint=checkpoint)
        notes.append(
            f"A step is one with --capture. Eager, the CPU issues {network.operators:,} operators for it and "
            f"needs {digits(1e3 * least.best, 2)} to {digits(1e3 * least.worst, 2)} ms: no eager step is shorter, "
            "and FSDP's is longer."
        )
    else:
        notes.append(f"One device's speed is of {measured.source}.")
        notes += [f"Not predicted from it: {one}." for one in measured.not_predicted]
    notes.append("Memory may be off by a tenth, so that above 90% a layout is tight.")
    notes.append(
        "Each part of it is what it is at its largest, the total the most at once: FSDP's gradients come when "
        "activations go, and the optimizer works when these are gone."
    )
    more = sum(filled(shape, gpus) for shape in network.shapes) / network.parameters - 1
    if more > FILLING:
        notes.append(
            f"FSDP over {gpus} devices gathers {more:.0%} more than there is: it cuts each parameter along its "
            "first dimension, and fills up what cannot be divided."
        )
    return tuple(notes)


def as_json(plan: Plan) -> dict[str, Any]:
    """All numbers, in bytes and seconds."""
    return {
        "model": plan.network.name,
        "precision": plan.network.precision,
        "parameters": plan.network.parameters,
        "flops_per_image": plan.network.flops,
        "card": plan.card.name,
        "gpus": plan.gpus,
        "gpus_per_node": plan.node,
        "global_batch": plan.global_batch,
        "memory_gib": plan.memory,
        "layouts": [
            {
                "name": row.layout.name,
                "fits": row.fits,
                "bytes": {part: size for part, size in asdict(row.memory).items() if part != "phase"},
                "most_memory_in": row.memory.phase,
                "sent_inside_node": row.inside,
                "sent_between_nodes": row.between,
                "traffic": [asdict(one) | {"sent": one.sent} for one in row.traffic],
                "step_seconds": asdict(row.step.seconds),
                "efficiency": asdict(row.step.efficiency),
                "from_measurements": row.predicted,
                "gpu_hours": row.gpu_hours and asdict(row.gpu_hours),
            }
            for row in plan.rows
        ],
        "why_not": plan.why_not,
        "notes": list(plan.notes),
        "checkpoints": plan.saving and asdict(plan.saving),
    }
