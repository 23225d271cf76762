"""Constants from a results.csv: how fast one device computes, and what `lab predict` makes of the strategies.

A step of one device without a wrapper takes the place of the MFU from timing.py; it includes launches and
input. Where runs of ddp or fsdp on several devices are there too, the step of these layouts is the forecast of
lab/sweep/compare, up to four times the most devices that were measured; farther than that it says nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UserError
from lab.plan.layout import DDP, FSDP
from lab.plan.network import Network
from lab.plan.timing import Range
from lab.runs.options.model import DEFAULT_DEPTH, DEFAULT_WIDTH
from lab.sweep.compare.columns import BASELINE
from lab.sweep.compare.frame import load
from lab.sweep.compare.predict import BEYOND, MACHINE, Measured, fit, measurements

STRATEGIES = {DDP: "ddp", FSDP: "fsdp"}
PREDICTED_TO_BE_OFF = 0.1  # at least: of one device's speed from one run to the next


@dataclass(frozen=True)
class Constants:
    """What a file says of one network on one device. `steps`: seconds a step of the layouts that were
    predicted."""

    source: str
    device: str
    alone: Range
    steps: dict[str, Range]
    not_predicted: tuple[str, ...]


def constants(file: Path, network: Network, gpus: int, batch: int, *, checkpoint: bool = False) -> Constants:
    """Of the runs that trained this network in this precision.

    Raises:
        UserError: the file cannot be read, or there is no such run on one device without a wrapper.
    """
    machines = {
        machine: points
        for machine, points in measurements(load(file)).items()
        if _is_of(dict(zip(MACHINE, machine, strict=True)), network, checkpoint)
        and any(_is_base(point) for point in points)
    }
    if not machines:
        raise UserError(
            f"{file}: no finished run of --model {network.name} --precision {network.precision} of this size"
            f"{' with --checkpoint-activations' * checkpoint} and --strategy {BASELINE} on one device: "
            "measure one, or leave out --results"
        )
    # The fastest way to train it: where it was captured, that is the one to plan with.
    machine, points = min(machines.items(), key=lambda item: min(map(_an_image, filter(_is_base, item[1]))))
    parts = dict(zip(MACHINE, machine, strict=True))
    base = min(filter(_is_base, points), key=lambda point: abs(point.batch - batch))
    off = max(PREDICTED_TO_BE_OFF, base.spread)
    seconds = _an_image(base) * batch
    source = f"{file.name}: {parts['device']}, {base.batch} images a device"
    if base.batch != batch:
        source += f" (planned: {batch}; small batches are slower an image)"
    steps: dict[str, Range] = {}
    said = []
    for layout, strategy in STRATEGIES.items():
        own = [point.devices for point in points if point.strategy == strategy]
        try:
            model = fit(points, strategy)
        except UserError as error:
            said.append(f"{layout}: {error}")
            continue
        if gpus > BEYOND * max(own):
            said.append(
                f"{layout}: {gpus} devices are more than {BEYOND} times the {max(own)} that were measured, so its "
                "range is the table's"
            )
            continue
        middle, low, high = model.predict("weak", gpus, batch).seconds
        steps[layout] = Range(low, middle, high)
    alone = Range(seconds * (1 - off), seconds, seconds * (1 + off))
    return Constants(source, parts["device"], alone, steps, tuple(said))


def _an_image(point: Measured) -> float:
    return point.seconds / point.batch


def _is_base(point: Measured) -> bool:
    return point.strategy == BASELINE and point.devices == 1


def _is_of(parts: dict[str, str], network: Network, checkpoint: bool) -> bool:
    if (parts["model"], parts["precision"]) != (network.name, network.precision):
        return False
    if ("--checkpoint-activations" in parts["variant"]) != checkpoint:
        return False
    if network.width is None:
        return True
    said = dict(re.findall(r"--(width|depth) (\d+)", parts["variant"]))
    size = int(said.get("width", DEFAULT_WIDTH)), int(said.get("depth", DEFAULT_DEPTH))
    return size == (network.width, len(network.blocks))
