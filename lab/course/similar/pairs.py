"""Which modules of a class are alike, and how surprising that is: what is rare in the class weighs more."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lab.course.similar.fingerprint import Fingerprint, fingerprint

Modules = Mapping[str, str]  # file name -> text


@dataclass(frozen=True)
class Alike:
    """One module of two students.

    bits    how surprising it is that both have what they share: each k-gram counts log2(class / those who have it)
    share   of all such bits of the one that has fewer, how many both have
    grams   what they share
    """

    module: str
    bits: float
    share: float
    grams: frozenset[int]


@dataclass(frozen=True)
class Pair:
    """Two students, and their modules that are alike, the most surprising first."""

    students: tuple[str, str]
    modules: tuple[Alike, ...]

    @property
    def bits(self) -> float:
        return sum(one.bits for one in self.modules)

    @property
    def score(self) -> float:
        """Bits, each module's counted by the share of it that is alike: a whole module says more than pieces."""
        return sum(one.bits * one.share**2 for one in self.modules)


@dataclass(frozen=True)
class Comparison:
    """Of a class.

    pairs   all that share anything, the most surprising first
    prints  student and module -> fingerprint; None of a module that cannot be parsed, and was not compared
    """

    pairs: list[Pair]
    prints: Mapping[tuple[str, str], Fingerprint | None]

    @property
    def unread(self) -> list[tuple[str, str]]:
        """Student and module."""
        return [both for both, found in self.prints.items() if found is None]

    def lines(self, student: str, alike: Alike) -> set[int]:
        """On which lines of the student's module that stands which both have."""
        mine = self.prints[student, alike.module]
        return set().union(*(mine.grams[gram] for gram in alike.grams)) if mine else set()


def compared(sources: Mapping[str, Modules], stubs: Modules) -> Comparison:
    """Every student's modules with every other's.

    Args:
        sources: student -> modules.
        stubs: what everybody was given, and counts for nobody.
    """
    given = {name: set(found.grams) for name, text in stubs.items() if (found := fingerprint(text))}
    alike_of: dict[tuple[str, str], list[Alike]] = {}
    prints = {
        (student, module): fingerprint(text)
        for student, modules in sources.items()
        for module, text in modules.items()
    }
    for module in sorted({name for _, name in prints}):
        of_module = {
            student: mine for (student, name), mine in prints.items() if name == module and mine is not None
        }
        for both, alike in _of_module(module, of_module, given.get(module, set())):
            alike_of.setdefault(both, []).append(alike)
    result = [
        Pair(both, tuple(sorted(modules, key=lambda one: (-one.bits, one.module))))
        for both, modules in alike_of.items()
    ]
    return Comparison(sorted(result, key=lambda pair: (-pair.score, pair.students)), prints)


def _of_module(
    module: str, prints: Mapping[str, Fingerprint], given: set[int]
) -> list[tuple[tuple[str, str], Alike]]:
    having = Counter(gram for mine in prints.values() for gram in mine.grams)
    weight = {gram: math.log2((len(prints) + 1) / count) for gram, count in having.items()}
    kept = {student: mine.kept - given for student, mine in prints.items()}
    total = {student: sum(weight[gram] for gram in grams) for student, grams in kept.items()}
    found = []
    for both in itertools.combinations(sorted(prints), 2):
        one, other = both
        shared = kept[one] & kept[other]
        bits = sum(weight[gram] for gram in shared)
        if bits > 0:
            share = bits / max(min(total[one], total[other]), 1e-9)
            found.append((both, Alike(module, bits, share, shared)))
    return found
