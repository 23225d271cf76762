"""A wrong answer's diagnosis told anew, where its conduct shows the cause: lab/collectives/conduct.py notes it.

A caught error, a launcher's variable that was set, or a condition on the rank looks to a judge like something that
is missing. Whether an answer is right is not decided here: nothing in this file can turn a failure into a pass.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lab.base.source import parsed, searchable
from lab.base.words import one_line, rank_list
from lab.collectives.conduct import FORCED, Caught, Variable
from lab.collectives.decided import Place, suspects
from lab.grading import hang
from lab.grading.check import Check, Group, left_with
from lab.grading.diagnosis import TO_LOOK, Diagnosis
from lab.grading.places import asks_for_its_node, at_line, counts_gpus, is_a_mistake, read_lines
from lab.grading.unread import NOT_ADDED, dropped, of_the_source, unordered, unread
from lab.ranks.environment import ONE_NODE
from lab.ranks.rank import LOCAL
from lab.syllabus.syllabus import syllabus

SWALLOWED, ONE_RANK, LAUNCHER = "error-swallowed", "not-on-every-rank", "launcher-variable-set"
OF_A_NODE, AT_TIMES = "local-number-as-global", "done-at-times"
MORE = " There may be more after it."  # said in the exercises of several steps

# Diagnoses that say already what else would be said here.
_TOLD = (
    *TO_LOOK,
    *("import-failed", "syntax-error", "no-file", "no-function", SWALLOWED, ONE_RANK, LAUNCHER, "load-retried"),
    "no-group-of-one",
)
# What comes of ranks that do not meet, or take themselves for another one.
_LOST = ("hang", "stuck-rank", "raised", "wrong-rank", "world-size-hard-coded", "no-process-group", "exited")
_THIS_HOST = {"localhost", "127.0.0.1", "::1"}
_RANK = re.compile(r"rank|main|master|first|world|\b[rR]\b", re.I)
# What is told of sums that were not reduced over the ranks, of weights that were not sent.
_NOT_REDUCED = (
    *(
        "no-all-reduce",
        "count-not-reduced",
        "loss-not-reduced",
        "total-not-reduced",
        "not-reduced",
        "only-divided",
    ),
    *("ranks-start-apart", "averages", "wrong-mean", "wrong-loss", "ranks-disagree", "divided-by-world-size"),
)
# What is told of a call that was not made, of one that was made with less, or not for everything.
_LEFT_OUT = (
    *("no-process-group", "not-wrapped", "bucket-cap-ignored", "not-on-device", "buffers-part"),
    *("not-sharded", "root-not-sharded", "only-root-sharded", "block-left-out", "rest-not-sent", "replicated"),
    *("weights-changed", "precision-ignored", "precision-not-everywhere", "batchnorm-in-bf16"),
    *("some-parameters-left-out", "group-not-destroyed", "no-set-device", "others-do-not-load"),
)
# What is told of a division or a copy that has had no effect.
_NO_EFFECT = ("summed-not-averaged", "divided-by-world-size", "not-divided", "loss-not-detached", "wrong-factor")
# What is told of ranks whose collectives meet with other tensors.
_MIXED = ("different-sizes", "different-order", "wrong-gradients", "ranks-disagree")
_OTHERWISE = (
    *("raised", "hang", "stuck-rank", "exited", "killed", "unusable-result", *hang.MEANS),
    *("talks-to-itself", "no-such-rank"),  # what gloo raises, in other words
)
_OF_RANKS = ("ranks-disagree", "ranks-start-differently", "different-order")  # another error is no better word
_WITH_A_LINE = ("raised", "exited", "killed", "unusable-result")  # what was raised tells its own line
# What is told in these exercises where something was not done, or not every time.
_NOT_DONE = (
    *("message-sizes-differ", "message-missing", "not-waited", "too-few-steps", "wrong-sum", "not-added"),
    *("not-gathered", "not-all-gathered", "copied-into-wrong-part", "rest-left-out", "different-sizes"),
    *("never-reduced", "gradient-missing", "not-reduced", "buffers-differ", "not-reset", "not-stepped"),
    *("not-handed-out", "some-not-handed-out", "owners-overwritten", "not-copied-back", "wrong-weights"),
    *("early-states-kept", "states-kept-twice", "not-freed-after-forward", "not-freed-after-backward"),
    *("not-gathered-again", "stale-evaluation", "no-overlap"),
)
_TRIES, _NOTHING = 2, "nothing wrong."  # conditions; what is left wrong without one
SO = " caught it. So "
# What is left wrong where the launcher says nothing of the node: nothing, or that it says nothing.
_WITHOUT_LOCAL = ("", "rank-from-torchrun-only")
_LONG = ("5.1", "6.1")
# The first process of a file system does something else than the others; so do a pipeline's first and last rank;
# and of an optimizer each rank steps a share of its own.
_TELLS_RANKS_APART = ("2.3",)  # is_main_process, by purpose: the same everywhere is another mistake
_PARTED_BY_RIGHT = ("3.1", "9.3", "9.6")


def retold(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis:
    """The diagnosis, or another one of the same failure; in a long exercise it may not be the only one."""
    told = _retold(diagnosis, check, group)
    if told.name not in _TOLD:
        told = of_the_source(told, check, group)
    if check.exercise not in _LONG or told.name in TO_LOOK:
        return told
    return Diagnosis(told.name, saw=told.saw, means=told.means + MORE, look=told.look, details=told.details)


def _retold(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis:
    if not group.results or diagnosis.name in TO_LOOK:
        return diagnosis
    if local := _of_a_node(diagnosis, check, group):
        return local
    if diagnosis.name in _TOLD:
        return diagnosis
    if diagnosis.name in _MIXED and (of_a_set := unordered(diagnosis, check, group)):
        return of_a_set
    if diagnosis.name in hang.MEANS:
        return _at_the_condition(diagnosis, check, group)
    changed = _set_otherwise([one for report in _reports(group) for one in report.conduct.variables])
    if changed and diagnosis.name in _LOST:
        return _of_the_launcher(changed, group)
    own = Path(syllabus()[check.exercise].file).name
    caught = [one for report in _reports(group) for one in report.conduct.caught if Path(one.file).name == own]
    missing = diagnosis.name in (*_NOT_REDUCED, *_LEFT_OUT)
    if kept := next((one for one in caught if is_a_mistake(one, missing)), None):
        return _swallowed(diagnosis, kept, group)
    if diagnosis.name in _NOT_REDUCED and (nothing := unread(diagnosis, check, group)):
        return nothing
    if diagnosis.name in (*_NO_EFFECT, *NOT_ADDED) and (nothing := dropped(diagnosis, check, group)):
        return nothing
    if diagnosis.name in _WITH_A_LINE:
        return diagnosis
    parted = None if check.exercise in _PARTED_BY_RIGHT else _on_some_ranks(diagnosis, check, group)
    return parted or _at_times(diagnosis, check, group) or diagnosis


def _reports(group: Group) -> Iterator:
    for result in group.results:
        yield from result.reports


def _swallowed(diagnosis: Diagnosis, caught: Caught, group: Group) -> Diagnosis:
    said = f"{caught.type}: {one_line(caught.message, 90)}" if caught.message else caught.type
    return Diagnosis(
        SWALLOWED,
        saw=f"{caught.function}() raised {said}, and line {caught.handler}{SO}{one_line(diagnosis.saw, 110)}",
        means="An error that is caught is still one: what it kept from happening is missing. Let it come out.",
        look=at_line(caught.file, _to_change(caught, group), group.code),
        details=diagnosis.details,
    )


def _to_change(caught: Caught, group: Group) -> int:
    """The line that raised it; that of the `except` where an assertion did, as it should."""
    text = at_line(caught.file, caught.line, group.code).partition("  ")[2]
    return caught.handler if text.startswith("assert") else caught.line


def _of_a_node(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis | None:
    """Told of the first line that asks for a number of its node, if with all ranks on one nothing is wrong."""
    numbers = "" if group.env else asks_for_its_node(check.exercise, group.code)
    place = numbers or ("" if group.env else counts_gpus(check.exercise, group.code))
    if not place or any(word in diagnosis.name for word in ("device", "gpu", "barrier-of-some")):  # own to a node
        return None
    env: dict[str, str | None] = {**dict.fromkeys(LOCAL), ONE_NODE: "1"}
    if left_with(env, check, group) not in _WITHOUT_LOCAL:
        return None
    return Diagnosis(
        OF_A_NODE,
        saw="on several nodes, each "
        + ("of which numbers its own processes: " if numbers else "with GPUs of its own: ")
        + one_line(diagnosis.saw, 150),
        means="Each node counts its ranks from 0. The group has dist.get_rank() and dist.get_world_size()."
        if numbers
        else "device_count() counts the GPUs of one node only; dist.get_world_size() counts all ranks.",
        look=place,
        details=diagnosis.details,
    )


def went_on(said: str, line: int, check: Check, code: Path) -> Diagnosis:
    """An error that the check has made was kept by the `except` of a line. `said`: what came of it."""
    return Diagnosis(
        SWALLOWED,
        saw=f"the check made an error come up here, and line {line} kept it to itself: "
        f"{one_line(said.partition(SO)[2] or said, 150)}",
        means="Out of memory, a rank that is gone, a full disk: such an error must end the run. Let it come out.",
        look=at_line(syllabus()[check.exercise].file, line, code),
    )


def _set_otherwise(noted: Iterable[Variable]) -> list[Variable]:
    """The launcher's variables that were there and were changed, each once; first what must part the ranks.

    Another name of the same host does not, here: on the next cluster it would.
    """
    first: dict[str, Variable] = {}
    for one in noted:
        if one.before:
            first.setdefault(one.name, one)
    return sorted(first.values(), key=lambda one: {one.before, one.after} <= _THIS_HOST)


def _of_the_launcher(changed: Sequence[Variable], group: Group) -> Diagnosis:
    first, *more = changed
    said = f"the launcher's {first.name} was {one_line(first.before, 40)}, and your code {_now(first)}"
    said += "".join(f"; {one.name} was {one_line(one.before, 40)}, and it {_now(one)}" for one in more[:1])
    return Diagnosis(
        LAUNCHER,
        saw=f"{said}: the ranks do not find each other.",
        means="torchrun or srun has agreed on these values with all ranks: read them, and set none that is there.",
        look=at_line(first.file, first.line, group.code),
    )


def _now(changed: Variable) -> str:
    return f"set it to {one_line(changed.after, 40)}" if changed.after else "took it away"


def _on_some_ranks(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis | None:
    """Told of the condition, if with the same one on every rank the failure is gone, or else is another one."""
    other = None
    for place, ways in list(
        _parted(group, Path(syllabus()[check.exercise].file).name, diagnosis.name in hang.MEANS)
    )[:_TRIES]:
        look = at_line(place[0], place[1], group.code)
        if look.partition("  ")[0] == diagnosis.look.partition("  ")[0] and "rank" in diagnosis.saw:
            continue  # told already
        tries = (True, False)[: 1 if diagnosis.name in ("hang", "stuck-rank") else 2]
        left_by = {way: _with_condition(place, way, check, group) for way in tries}
        for way, left in sorted(left_by.items(), key=lambda item: item[1] != ""):  # nothing, before another error
            if left == diagnosis.name or left in _OTHERWISE or (left and diagnosis.name in _OF_RANKS):
                continue
            if left and check.exercise in _TELLS_RANKS_APART:
                continue
            off = [rank for rank, gone in ways.items() if way not in gone]
            off = off or [rank for rank, gone in ways.items() if gone != {way}]
            told = Diagnosis(
                ONE_RANK,
                saw=f"on {rank_list(off)}, where `{one_line(place[2], 60)}` is {str(not way).lower()}: "
                f"{one_line(diagnosis.saw, 150)}",
                means="This condition parts the ranks, and what it decides is for every rank: without it there is "
                + ("no such error." if left else _NOTHING),
                look=look,
                details=diagnosis.details,
            )
            if not left:
                return told
            other = other or told
    return other


def _at_times(diagnosis: Diagnosis, check: Check, group: Group, found: object = None) -> Diagnosis | None:
    """Told of the condition without which nothing is wrong; None where there is none."""
    file, folder = syllabus()[check.exercise].file, group.code.resolve()
    tree = parsed("\n".join(read_lines(str(folder / file), folder)))
    conducts = [report.conduct for report in _reports(group)]
    is_one = (diagnosis.name in _NOT_DONE or found) and check.exercise in ("9.1", "9.2", "9.3", "9.4")
    if tree is None or not is_one:
        return None
    for one in list(suspects(conducts, Path(file).name, tree, diagnosis.look))[: 2 * _TRIES]:
        if _with_condition(one.place, one.way, check, group) == "":
            way = "true" if one.leaves else "not true"
            return Diagnosis(
                AT_TIMES,
                saw=f"`{one_line(one.place[2], 60)}` is {way} at times: {one_line(diagnosis.saw, 160)}",
                means="It leaves where it has to go on: if it never does, nothing is wrong."
                if one.leaves
                else "What stands under this condition belongs in every round: without it nothing is wrong.",
                look=at_line(one.place[0], one.line, group.code),
                details=diagnosis.details,
            )
    return None


def _at_the_condition(diagnosis: Diagnosis, check: Check, group: Group) -> Diagnosis:
    """Ranks that wait for each other: which line parts them, where that is not the line in which they wait."""
    found = None if check.exercise in _PARTED_BY_RIGHT else _on_some_ranks(diagnosis, check, group)
    if found is None:
        return _at_times(diagnosis, check, group) or diagnosis
    at = found if found.means.endswith(_NOTHING) else _at_times(diagnosis, check, group, found) or found
    saw, means = diagnosis.saw, diagnosis.means
    return Diagnosis(diagnosis.name, saw=saw, means=means, look=at.look, details=diagnosis.details)


def _parted(group: Group, file: str, any_text: bool) -> Iterator[tuple[Place, dict[int, set[bool]]]]:
    """The conditions that went one way on some ranks and another way on others.

    Args:
        any_text: also those that do not speak of ranks.
    """
    found: dict[Place, dict[int, set[bool]]] = {}
    for result in group.results:
        taken: dict[Place, dict[int, set[bool]]] = {}
        for report in result.reports:
            for place, ways in report.conduct.conditions:
                if Path(place[0]).name != file:
                    continue
                taken.setdefault(place, {})[report.rank] = set(ways)
        for place, by_rank in taken.items():
            kinds = {frozenset(ways) for ways in by_rank.values()}
            opposite = kinds == {frozenset({True}), frozenset({False})}
            if len(kinds) > 1 and (opposite or any_text or _RANK.search(searchable(place[2]))):
                found.setdefault(place, by_rank)
    # One that goes either way on one rank may only tell that the others had not come to it the second time.
    yield from sorted(found.items(), key=lambda item: any(len(ways) > 1 for ways in item[1].values()))


def _with_condition(place: Place, way: bool, check: Check, group: Group) -> str:
    """The name of what is wrong where a condition goes this way on every rank; "" where nothing is."""
    return left_with({FORCED: f"{Path(place[0]).name}:{place[1]}:{int(way)}:{place[2]}"}, check, group)
