"""The parts of an exercise, each with points of its own: which of them hold, although another one does not.

A judge says what a step of it belongs to, by the name that the part has in syllabus.toml:

    with part("the mean over the ranks"):
        judge_mean(...)

A Diagnosis that is raised in there is remembered and judging goes on. The first one is that of the check, as if it
had ended there. Outside of a check's run, and where nothing is noted, `part` lets everything through.

`compared` notes what the ranks have beside what is right, for `lab check --why`. It judges nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab.grading.diagnosis import TO_LOOK, CheckEnded, Diagnosis, Failed, LabError

if TYPE_CHECKING:
    from lab.grading.check import Group, Order
    from lab.ranks.reports import GroupResult

HELD, FAILED, UNJUDGED = "held", "failed", "not judged"

# What comes of reports that lack what an earlier part of them did not hold: it says nothing about this part.
_UNUSABLE = (*TO_LOOK, "unusable-result")


@dataclass(frozen=True)
class Compared:
    """What each rank has, and what is right there.

    group     the number of the group of ranks, as they ran
    expected  one value for all ranks; or one each, if `each`
    """

    group: int
    what: str
    observed: Sequence[Any]
    expected: Any
    each: bool


@dataclass
class Ledger:
    """What one run of a check has found so far.

    first   the first diagnosis, and the groups that had run by then
    groups  at the end, every group of ranks with what it was to do
    """

    group: "Group"
    met: dict[str, set[str]] = field(default_factory=dict)  # part -> those without which it does not count
    failed: set[str] = field(default_factory=set)
    unjudged: set[str] = field(default_factory=set)
    first: "tuple[Diagnosis, list[GroupResult]] | None" = None
    compared: list[Compared] = field(default_factory=list)
    whole: bool = False  # the judge has come to its end
    groups: "tuple[tuple[Order, GroupResult], ...]" = ()

    def note(self, name: str, diagnosis: Diagnosis) -> None:
        """The part does not hold, and why."""
        if self.first is None:
            self.first = diagnosis, list(self.group.results)
        elif diagnosis.name in _UNUSABLE:
            self.unjudged.add(name)
            return
        self.failed.add(name)

    @property
    def parts(self) -> dict[str, str]:
        """Part -> HELD, FAILED or UNJUDGED, of those that the check has come to.

        Where the judge was ended, nothing is known to hold: another group of ranks might have shown the contrary.
        """
        found = {
            name: FAILED if name in self.failed else UNJUDGED if name in self.unjudged or not self.whole else HELD
            for name in self.met
        }
        for name, needed in self.met.items():  # in order: what is needed comes before
            if found[name] == HELD and any(found.get(other) != HELD for other in needed):
                found[name] = UNJUDGED
        return found


_LEDGER: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def noted(ledger: Ledger) -> Iterator[None]:
    """Note the parts in here. At the end raises the first diagnosis of all, with the groups that had run by then.

    What may have cost parts that hold is raised as it is, though.
    """
    group = ledger.group
    token = _LEDGER.set(ledger)
    try:
        yield
        ledger.whole = True
    except BaseException as error:
        if ledger.first is None or _cost_parts(error) or isinstance(error, KeyboardInterrupt | SystemExit):
            raise
    finally:
        _LEDGER.reset(token)
        ledger.groups = tuple(zip(group.orders, group.results, strict=True))
    if ledger.first is not None:
        diagnosis, group.results = ledger.first
        raise diagnosis


@contextmanager
def part(name: str, *, after: Sequence[str] = ()) -> Iterator[None]:
    """A step of a judge that decides on one part; the part may have several.

    Args:
        name: as in syllabus.toml.
        after: parts that must hold for this one to count: without them it would hold for an answer that does
            nothing.
    """
    ledger = _LEDGER.get()
    if ledger is None:
        yield
        return
    ledger.met.setdefault(name, set()).update(after)
    try:
        yield
    except Diagnosis as diagnosis:
        ledger.note(name, diagnosis)
    except Exception as error:
        if ledger.first is None or _cost_parts(error) or isinstance(error, CheckEnded):
            raise
        ledger.unjudged.add(name)  # what it stumbles over is missing because of an earlier failure


def compared(what: str, observed: Sequence[Any], expected: Any, *, each: bool = False) -> None:
    """Note what is compared.

    Args:
        what: in a few words.
        observed: a value for each rank.
        expected: the value that all of them should have; or with `each`, a list with that of each rank.
    """
    if (ledger := _LEDGER.get()) is not None:
        number = len(ledger.group.results) - 1
        ledger.compared.append(Compared(number, what, list(observed), expected, each))


def merged(found: Sequence[Mapping[str, str]], names: Sequence[str]) -> dict[str, str]:
    """The state of each part, from what the exercise's checks have found; UNJUDGED where none has come to it."""
    states = {}
    for name in names:
        said = {parts[name] for parts in found if name in parts}
        states[name] = next((state for state in (FAILED, UNJUDGED, HELD) if state in said), UNJUDGED)
    return states


def in_words(points: float, of: int, parts: Sequence[tuple[str, int, str]]) -> str:
    """ "4 of 8 points: a new order (3), whole batches (1); wrong: the mean (2); not judged: options (2)".

    Args:
        parts: name, points and state of each; of none where an exercise has no parts, or none was come to.
    """
    by_state = {
        state: ", ".join(f"{name} ({worth})" for name, worth, found in parts if found == state)
        for state in (HELD, FAILED, UNJUDGED)
    }
    said = f"{points:g} of {of} points" + (f": {by_state[HELD]}" if by_state[HELD] else "")
    said += f"; wrong: {by_state[FAILED]}" if by_state[FAILED] else ""
    return said + (f"; not judged: {by_state[UNJUDGED]}" if by_state[UNJUDGED] else "")


def _cost_parts(error: BaseException) -> bool:
    """Whether parts may hold that were not judged because of it: by the lab's fault, or for lack of time."""
    from lab.ranks.server import RankServerError

    return isinstance(error, RankServerError) or (
        isinstance(error, CheckEnded) and isinstance(error.outcome, LabError | Failed)
    )
