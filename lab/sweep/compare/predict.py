"""A small model of what a training step costs, fitted to measured points, and what it says of more devices.

    t(N, b) = max(floor, launch + image b) + wrapper + exposed(N, b)
    exposed = issue + max(messages, messages + moved - hidden 2/3 (launch + image b)), nothing for N = 1
    messages = latency (N - 1),   moved = bytes (N - 1) / N

for N devices with b images each. A ring all-reduce sends 2 (N - 1) messages a bucket and moves 2 (N - 1)/N of the
gradients' bytes over each link; the all-gathers and the reduce-scatter of FSDP do so alike, with other constants
(Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009). The backward pass, two thirds of the compute,
hides some of what is moved; the start of each message it cannot hide. `issue` is what it costs the CPU, and
the kernels of the collectives, to talk at all: the same with one partner or with many.

A few points do not determine seven numbers: on two devices nobody can tell one kind of talking from another. So
the model is not fitted once: many sets of constants are drawn, each weighs as much as it agrees with the
measurements, and the prediction is their weighted median, with the range that holds the middle 90 per cent. The
range is honest about what was not measured; it knows nothing of what the model leaves out, such as the network
between nodes. Of drawn machines (ring all-reduces, Amdahl's serial part, flat weak scaling, a step that cannot be
shorter than its launches), measured on 1, 2 and 4 devices, 8 and 16 lie in the range at least 7 times of 10
(tests/sweep/test_predict_laws.py). Where `lab bandwidth` has measured the links, latency and bytes are drawn
around what it says (Talk), and the rest as before (tests/sweep/test_predict_links.py). Beyond
four times the most devices that were measured, nothing is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lab.base.errors import UserError
from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB
from lab.slurm import states
from lab.sweep.compare.columns import BASELINE

# Runs that differ in one of these have other constants.
MACHINE = ("model", "dataset", "precision", "device", "input", "variant")
NOISE = 0.02  # relative: the least that is believed of a measurement, whatever its repeats say
DRAWS = 65_000
ENOUGH = 200  # draws that must count; else the measurements are believed less, and it is said
LOW, HIGH = 0.05, 0.95
BESIDE_COMPUTE = 2.0  # times what a collective takes alone: it shares memory and cores with the backward pass
# Of the draws: talking costs the same with any number of partners; nothing; launching is what a step waits for.
STILL, SILENT, FLOORED = 0.45, 0.35, 0.35
BEYOND = 4  # times the most devices that were measured: farther than that there is no number

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Measured:
    """Seconds a step on `devices` with `batch` images each: the median over repeats, and their relative spread."""

    strategy: str
    scaling: str
    devices: int
    batch: int
    seconds: float
    spread: float
    node: int  # devices on one node


@dataclass(frozen=True)
class Talk:
    """What was measured of the links alone, on so many ranks of one node: the model's `latency` and `bytes`.

    latency, bytes  seconds a step
    off             how far the measurements are from these constants, a fraction
    """

    latency: float
    bytes: float
    off: float
    ranks: int


@dataclass(frozen=True)
class Predicted:
    """Seconds a step, and the efficiency over one device without a wrapper: median, low and high (5%, 95%)."""

    devices: int
    batch: int
    seconds: tuple[float, float, float]
    efficiency: tuple[float, float, float]


@dataclass(frozen=True)
class Model:
    """Weighted sets of constants for one strategy. `doubt`: how often the noise was doubled until they agreed."""

    constants: Mapping[str, Array]
    weights: Array
    doubt: int

    def step(self, devices: int, batch: int) -> Array:
        """Seconds a step, one value for each set of constants."""
        return _step(self.constants, devices, batch)

    def alone(self, batch: int) -> Array:
        """The same on one device without a wrapper."""
        return self.constants["launch"] + self.constants["image"] * batch

    def predict(self, scaling: str, devices: int, batch_on_one: int) -> Predicted:
        """What `devices` will do.

        Args:
            scaling: strong divides the batch of one device among all, weak gives each as much.

        Raises:
            UserError: strong scaling leaves less than an image for each device.
        """
        batch = batch_on_one // devices if scaling == "strong" else batch_on_one
        if batch < 1:
            raise UserError(too_many(batch_on_one, devices))
        seconds = self.step(devices, batch)
        one = self.alone(batch_on_one)
        efficiency = one / (devices * seconds) if scaling == "strong" else one / seconds
        return Predicted(devices, batch, self._range(seconds), self._range(efficiency))

    def _range(self, values: Array) -> tuple[float, float, float]:
        order = np.argsort(values)
        share = np.cumsum(self.weights[order])
        low, middle, high = (float(values[order][np.searchsorted(share, p)]) for p in (LOW, 0.5, HIGH))
        return middle, low, high


def too_many(batch: int, devices: int) -> str:
    """The sentence for more devices than there are images in a step of all of them."""
    return f"a batch of {batch} cannot be divided among {devices} devices: predict for fewer"


def measurements(runs: pd.DataFrame) -> dict[tuple[str, ...], list[Measured]]:
    """The finished runs, those of one machine and one network together."""
    usual = runs["bucket_cap_mb"].fillna(DEFAULT_BUCKET_CAP_MB) == DEFAULT_BUCKET_CAP_MB  # others, other constants
    known = runs[(runs["status"] == states.DONE) & usual & (runs["images_per_sec"] > 0)]
    known = known[(known["global_batch"] >= known["world_size"]).fillna(False)]
    known = known.assign(
        scaling=known["scaling"].replace("", "strong"),
        batch=known["global_batch"] // known["world_size"],
        node=known["world_size"] // known["nodes"].where(known["nodes"] > 0).fillna(1),
        step=(known["global_batch"] / known["images_per_sec"]).astype("float64"),
    )
    point = ["strategy", "scaling", "world_size", "batch", "node"]
    found: dict[tuple[str, ...], list[Measured]] = {}
    times = known.groupby([*MACHINE, *point])["step"].agg(["min", "median", "max"])
    for key, (least, middle, largest) in zip(times.index, times.to_numpy(), strict=True):
        strategy, scaling, devices, batch, node = key[len(MACHINE) :]
        spread = (largest - least) / (2 * middle)
        one = Measured(strategy, scaling, int(devices), int(batch), float(middle), float(spread), int(node))
        found.setdefault(key[: len(MACHINE)], []).append(one)
    return found


def fit(points: Sequence[Measured], strategy: str, seed: int = 0, talk: Talk | None = None) -> Model:
    """Constants of one strategy that agree with its points and with those of the baseline.

    Args:
        talk: in the place of drawn constants; beside a backward pass it may take up to BESIDE_COMPUTE times as
            long.

    Raises:
        UserError: there is no baseline on one device, or no point of this strategy on several.
    """
    base = [point for point in points if point.strategy == BASELINE and point.devices == 1]
    own = [point for point in points if point.strategy == strategy]
    if not base:
        raise UserError("there is no finished run of --strategy none on 1 device: a prediction begins with it")
    if not any(point.devices > 1 for point in own):
        raise UserError(f"there is no finished run of {strategy} on 2 devices: nothing tells what talking costs")
    draw = np.random.default_rng(seed)
    constants = _draw(draw, base, own)
    if talk is not None:
        off = max(NOISE, talk.off)
        for name, seconds in (("latency", talk.latency), ("bytes", talk.bytes)):
            slower = BESIDE_COMPUTE ** (draw.uniform(0, 1, DRAWS) ** 2)
            constants[name] = seconds * slower * np.exp(off * draw.uniform(-1, 1, DRAWS))
    error = np.zeros(DRAWS)
    for point in (*base, *own):
        noise = max(NOISE, point.spread)
        said = (
            constants["launch"] + constants["image"] * point.batch
            if point.strategy == BASELINE
            else _step(constants, point.devices, point.batch)
        )
        error += ((said / point.seconds - 1) / noise) ** 2
    doubt = 0
    while True:
        weights = np.exp(-(error - error.min()) / 2 / 4**doubt)
        weights /= weights.sum()
        if 1 / float((weights**2).sum()) >= ENOUGH or doubt >= 6:
            return Model(constants, weights, doubt)
        doubt += 1


def _draw(draw: np.random.Generator, base: Sequence[Measured], own: Sequence[Measured]) -> dict[str, Array]:
    """Sets of constants before anything was compared: all that the measurements allow, and little more."""
    largest = max(base, key=lambda point: point.batch)
    total = largest.seconds * (1 + 2 * NOISE * draw.standard_normal(DRAWS))
    batches = {point.batch for point in base}
    if len(batches) > 1:  # two batch sizes tell the start of kernels from the work
        smallest = min(base, key=lambda point: point.batch)
        less = smallest.seconds * (1 + 2 * NOISE * draw.standard_normal(DRAWS))
        image = np.clip((total - less) / (largest.batch - smallest.batch), 0, total / largest.batch)
    else:
        image = total * (1 - draw.uniform(0, 1, DRAWS) ** 2) / largest.batch
    launch = total - image * largest.batch
    alone = [point for point in own if point.devices == 1]
    if alone:  # the wrapper on one device has nobody to talk to: what it costs there is its own
        first = alone[0]
        extra = first.seconds * (1 + 2 * NOISE * draw.standard_normal(DRAWS)) - launch - image * first.batch
        wrapper = np.clip(extra, 0, None)
    else:
        wrapper = total * draw.uniform(0, 1, DRAWS) ** 2
    # On two devices some time is exposed, and nobody knows of which kind it is. Any parting is as likely, but
    # messages to each further device mostly are the least. Some sets hide all that is moved behind the backward.
    exposed = max(point.seconds for point in own) * draw.uniform(0, 1, DRAWS) ** 2
    hidden = draw.uniform(0, 1, DRAWS)
    cover = hidden * 2 / 3 * (launch + image * min(point.batch for point in own))
    all_hidden = draw.random(DRAWS) < 0.3
    issue = draw.uniform(0, 1, DRAWS) * exposed
    exposed = exposed - issue
    share = np.where(all_hidden, 1.0, draw.uniform(0, 1, DRAWS) ** 2)
    # Where no measurement shows that talking costs more with more partners, it may well cost nothing or the same:
    # work that is split in a serial and a parallel part (Amdahl), or weak scaling that stays flat.
    still = draw.random(DRAWS) < STILL
    issue, exposed = np.where(still, issue + exposed, issue), np.where(still, 0.0, exposed)
    silent = draw.random(DRAWS) < SILENT
    issue, exposed = np.where(silent, 0.0, issue), np.where(silent, 0.0, exposed)
    behind = np.where(all_hidden, draw.uniform(0, 1, DRAWS), 1.0)
    # No step is shorter than the CPU takes to launch it. Where that is nobody knows until a step is as short.
    shortest = min(point.seconds for point in own)
    floor = np.where(draw.random(DRAWS) < FLOORED, shortest * draw.uniform(0, 1, DRAWS), 0.0)
    return {
        "launch": launch,
        "floor": floor,
        "image": image,
        "wrapper": wrapper,
        "issue": issue,
        "latency": share * exposed,
        "bytes": 2 * ((1 - share) * exposed + behind * cover),
        "hidden": hidden,
    }


def _step(constants: Mapping[str, Array], devices: int, batch: int) -> Array:
    compute = np.maximum(constants["floor"], constants["launch"] + constants["image"] * batch)
    messages = constants["latency"] * (devices - 1)
    moved = constants["bytes"] * (devices - 1) / devices
    if devices == 1:
        return compute + constants["wrapper"]
    exposed = constants["issue"] + np.maximum(messages, messages + moved - constants["hidden"] * 2 / 3 * compute)
    return compute + constants["wrapper"] + exposed
