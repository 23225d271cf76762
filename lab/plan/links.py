"""What a bandwidth.csv of `lab bandwidth` says of the links, in the place of data sheets.

A fit holds for its own collective, for groups that lie in one node where it was measured in one, and for groups
with as many ranks in a node where it was measured over several; up to BEYOND times its ranks. The rest is of the
table in hardware.py. It was measured on ranks that did nothing else: at worst it takes BESIDE_COMPUTE times as
long.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from lab.bandwidth.fit import Fit, fits
from lab.bandwidth.timings import ALL_REDUCE, GB, load
from lab.base.errors import UsageError, UserError
from lab.plan.hardware import Card
from lab.plan.traffic import Traffic
from lab.sweep.compare.predict import BESIDE_COMPUTE, BEYOND

LEAST_OFF = 0.1  # of one measurement to the next


@dataclass(frozen=True)
class Links:
    """The fits of a file; none, and `why_not`, where it could not be taken."""

    source: str
    fits: tuple[Fit, ...]
    why_not: str = ""

    def of(self, one: Traffic) -> Fit | None:
        """The fit that holds for it, of those the one on most nearly as many ranks."""
        inside = one.together >= one.ranks
        fitting = [
            fit
            for fit in self.fits
            if fit.collective == one.collective
            and one.ranks <= BEYOND * fit.ranks
            and (fit.nodes == 1 if inside else fit.nodes > 1 and fit.ranks == fit.nodes * one.together)
        ]
        return min(fitting, key=lambda fit: abs(math.log(fit.ranks / one.ranks)), default=None)

    def seconds(self, one: Traffic, case: int) -> float | None:
        """Of all its calls; None where no fit holds. case 0: at best, 1: in the middle, 2: at worst."""
        fit = self.of(one)
        if fit is None:
            return None
        rounds = (one.ranks - 1) * (2 if one.collective == ALL_REDUCE else 1)
        off = max(LEAST_OFF, fit.worst_off)
        factor = (1 / (1 + off), 1.0, max(1 + off, BESIDE_COMPUTE))[case]
        return factor * fit.seconds(one.calls * rounds, one.sent)


def links(file: Path, card: Card) -> Links:
    """Those of this card.

    Raises:
        UserError: it cannot be read, or no collective in it follows its fit.
        UsageError: it was measured on other devices.
    """
    timings = load(file)
    devices = sorted({one.device for one in timings})
    if card.name not in devices:
        raise UsageError(f"{file} is of {', '.join(devices)}, and the plan of {card.name}: take another --card")
    found = tuple(fit for fit in fits(timings)[0] if fit.device == card.name and fit.holds)
    if not found:
        raise UserError(
            f"{file}: no collective in it shows what a round and a byte cost: measure more sizes again"
        )
    return Links(file.name, found)


def links_beside(results: Path, card: Card, name: str) -> Links | None:
    """Those of a file beside a results.csv, if there is one; one that is of no use is named."""
    file = results.parent / name
    if not file.is_file():
        return None
    try:
        return links(file, card)
    except UserError as error:
        return Links(name, (), str(error))


def said(links: Links, sent: list[Traffic]) -> list[str]:
    """Sentences of what was taken from the file, and what not."""
    if links.why_not:
        return [f"Links are of data sheets: {links.why_not}."]
    used: dict[str, Fit] = {}
    rest: set[str] = set()
    for one in sent:
        fit = links.of(one)
        where = "in a node" if one.together >= one.ranks else "between nodes"
        if fit is None:
            rest.add(f"{one.collective} {where} ({one.ranks} ranks)")
        else:
            used[f"{one.collective} {where} ({one.ranks} ranks)"] = fit
    lines = [
        f"{what}: of {links.source}, measured on {fit.ranks} ranks that did nothing else, "
        f"{1e6 * fit.alpha:.3g} us a round and {fit.beta / GB:.3g} GB/s."
        for what, fit in sorted(used.items())
    ]
    if rest:
        lines.append(f"Not in {links.source}, so of data sheets: {', '.join(sorted(rest))}.")
    return lines
