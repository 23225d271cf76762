"""What a strategy's messages and bytes cost by a bandwidth.csv: constants that `lab predict` need not guess."""

import re
from collections.abc import Mapping
from pathlib import Path

from lab.bandwidth.fit import Fit, fits
from lab.bandwidth.timings import ALL_REDUCE, load
from lab.base.errors import UserError
from lab.plan.layout import DDP, FSDP, Layout
from lab.plan.network import describe
from lab.plan.traffic import traffic
from lab.sweep.compare.predict import Talk


def fits_in_a_node(file: Path) -> list[Fit]:
    """The fits of one node that say something.

    Raises:
        UserError: it cannot be read, or there are none.
    """
    found = [fit for fit in fits(load(file))[0] if fit.nodes == 1 and fit.holds]
    if not found:
        raise UserError(f"{file}: nothing in it shows what a round and a byte cost in a node: measure more sizes")
    return found


def talk(parts: Mapping[str, str], strategy: str, found: list[Fit]) -> Talk:
    """Of the collectives of a step, counted as `lab plan` does.

    Args:
        parts: model, precision, device and variant of the runs.

    Raises:
        UserError: the file is of other devices or lacks a collective, or the network or strategy is not known.
    """
    if strategy not in ("ddp", "fsdp"):
        raise UserError("only the collectives of ddp and fsdp are counted")
    own = [fit for fit in found if fit.device == parts["device"]]
    if not own:
        devices = ", ".join(sorted({fit.device for fit in found}))
        raise UserError(f"it is of {devices}, the runs are of {parts['device']}")
    ranks = max(fit.ranks for fit in own)
    size = {name: int(value) for name, value in re.findall(r"--(width|depth) (\d+)", parts["variant"])}
    network = describe(parts["model"], parts["precision"], width=size.get("width"), depth=size.get("depth"))
    layout = Layout(FSDP, ranks, ranks, 1, shards=ranks) if strategy == "fsdp" else Layout(DDP, ranks, ranks, 1)
    latency = moved = off = 0.0
    for one in traffic(network, layout):
        fit = next((fit for fit in own if fit.ranks == ranks and fit.collective == one.collective), None)
        if fit is None:
            raise UserError(f"it does not say what an {one.collective} costs on {ranks} ranks")
        times = 2 if one.collective == ALL_REDUCE else 1
        latency += one.calls * times * fit.alpha
        moved += one.payload * times / fit.beta
        off = max(off, fit.worst_off)
    return Talk(latency, moved, off, ranks)
