"""Conditions under which something is done that belongs in every round: those worth a trial without them.

Told from what the ranks noted of their conditions, and from the source, which is read and never run.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.base.source import searchable
from lab.collectives.conduct import Conduct

Place = tuple[str, int, str]  # file, line, the condition's text


@dataclass(frozen=True)
class Suspect:
    """A condition that went this way at times only.

    way     in which what stands under it, or below it, is done
    leaves  what stands under it leaves a function or a round
    line    where it leaves, or that of the condition
    """

    place: Place
    way: bool
    leaves: bool
    line: int


def suspects(conducts: Iterable[Conduct], file: str, tree: ast.Module, look: str) -> Iterator[Suspect]:
    """The conditions of a file, by name, that could be left out.

    First those that the ranks were parted by, then those next to the line to look at: "ddp.py:88  dist...".

    Not among them are tests for None, which guard what comes after them, and ends of loops.
    """
    line = re.match(r"[\w.]+:(\d+)", searchable(look))
    near = int(line[1]) if line else 0
    ways: dict[Place, list[frozenset[bool]]] = {}
    for conduct in conducts:
        for place, taken in conduct.conditions:
            if Path(place[0]).name == file:
                ways.setdefault(place, []).append(taken)
    ifs = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    branches = {part: node for node in ifs for part in _parts(node.test)}
    for place, went in sorted(ways.items(), key=lambda item: (len(set(item[1])) == 1, abs(item[0][1] - near))):
        node = branches.get(place[1:])
        if node is None or " None" in place[2] or any(isinstance(part, ast.Break) for part in node.body):
            continue
        leaves = isinstance(node.body[-1], ast.Return | ast.Continue)
        if set().union(*went) != {not leaves}:
            yield Suspect(place, not leaves, leaves, node.body[-1].lineno if leaves else place[1])


def _parts(test: ast.expr) -> Iterator[tuple[int, str]]:
    """Line and text of a condition, or of each part of it that is noted by itself."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part)
    else:
        yield test.lineno, ast.unparse(test)
