"""Exceptions of one traceback: what was raised because of another, or while it was handled, is one cause."""

import re
from dataclasses import dataclass, field

_BEGINS = re.compile(r"^(?P<who>[^\"']{0,60}?)(?P<original>Original )?Traceback \(most recent call last\)")
_GOES_ON = ("During handling of the above exception", "The above exception was the direct cause of")
_LONGEST_MESSAGE = 60  # lines between an exception's name and the next of its chain


@dataclass
class _Chain:
    lines: set[str] = field(default_factory=set)
    since: list[str] = field(default_factory=list)  # after the last exception that it named
    in_block: bool = True
    linked: bool = False
    links: int = 0


def chained(log: str) -> list[set[str]]:
    """The lines of each traceback that tells of more than one exception, as they stand in the log."""
    found: list[_Chain] = []
    reading: dict[str, _Chain] = {}  # what stands before each line of a rank -> its chain
    for line in log.splitlines():
        if (begins := _BEGINS.match(line)) is not None:
            who = begins["who"]
            if who not in reading or not (reading[who].linked or begins["original"]):
                reading[who] = _Chain()
                found.append(reading[who])
            chain = reading[who]
            chain.links += chain.linked or bool(begins["original"])
            chain.lines.update(chain.since)
            chain.in_block, chain.linked, chain.since = True, False, []
            continue
        who = next((one for one in reading if one and line.startswith(one.rstrip())), "")
        if (of := reading.get(who)) is None:
            continue
        of.since.append(line)
        rest = line[len(who) :]
        if of.in_block and rest and not rest[0].isspace():  # the exception itself
            of.lines.update(of.since)
            of.in_block, of.since = False, []
        elif rest.startswith(_GOES_ON):
            of.linked = True
        elif len(of.since) > _LONGEST_MESSAGE and not of.in_block:
            del reading[who]
    return [chain.lines for chain in found if chain.links]
