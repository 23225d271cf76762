"""What a log says: the symptoms in it, and the exception of the rank that failed first."""

import re
from collections import defaultdict
from dataclasses import dataclass, replace

from lab.base.words import one_line
from lab.diagnose import lines, overcome
from lab.diagnose.symptoms.entry import Symptom
from lab.diagnose.symptoms.table import (
    BEFORE_IT_RAN,
    SYMPTOMS,
    brings_about,
    explains,
    may_be_another_matter,
    needs_a_run,
)
from lab.diagnose.told import exceptions
from lab.diagnose.told.chains import chained
from lab.diagnose.told.ends import ended
from lab.diagnose.told.exceptions import GAVE_UP, RANK
from lab.diagnose.told.finding import LOOK_IT_UP, UNKNOWN, Finding

_OF_THE_GPU = ("out-of-gpu-memory", "gpu-memory-full", "gpu-fault")
# What a rank meets, too, when another one has failed on its way to it.
_MAY_FOLLOW = (
    "infiniband",
    "ranks-missing",
    "nccl-connect",
    "gloo-mesh",
    "port-in-use",
    "efa-unreachable",
    "meeting-point-elsewhere",
)
_OF_A_CONNECTION = re.compile(r"NCCL|[Gg]loo|TCPStore|[Ss]ocket|Dist\w+Error|[Cc]onnect|[Rr]endezvous")
_REPORTED = re.compile(r"failed \(exitcode: |^srun: error: \S+: tasks? \d|CANCELLED AT|(?i:oom[-_]kill)", re.M)
# That there was a connection, or the wait of ranks that had met.
_LOST = ("rank-lost", "nccl-timeout", "gloo-timeout", "collective-timeout", "barrier-missed", "infiniband")
AFTER_ALL, _FOLLOWS = 8, 9  # from the first on a finding follows from something else, or is only a warning
_PROGRAMS = ("srun ", "torch.", "gloo")  # are written so, at the beginning of a sentence too
_NAMES_RANKS = re.compile(r"^\[rank\d+\]:", re.M)
_KNOWN = re.compile(r"\{(name|file|tool|prefix)\}")  # what a command may take from the line that was found
WARNED = 10  # the order of what only a warning says
_NO_RULE = "The lab does not know what it means: the lines around it, on every node, say more."
_SPEAKS = re.compile(
    r"^(?!.*(?:NCCL INFO|\bINFO\b|[Ww]arning|[Rr]etry|Exited with exit code|Terminated$))"
    r".*(?:\b(?:error|ERROR|Error|fatal|Fatal|FATAL)\b ?[:\]!]|\wError\b|NCCL WARN"
    r"|\*\*\* .*(?:error|FATAL)|: not found$|Aborted|Segmentation fault|[Pp]ermission denied|No such file).*$",
    re.M,
)
# How processes ended, in the words of who saw it: not why.
_OF_THE_END = re.compile(
    r"^srun: error: \S+: tasks? |\*\*\* (?:STEP|JOB) |^\s*raise |exitcode|\.CalledProcessError|socket\.cpp"
    r"|exits with return code|Socket recv failed while|Could not receive type from|Failed to execute operation"
)
_EITHER = "Either may have come first, on a rank or node of its own: below is what each of them means."
_A_CAUSE = 2  # up to this order a symptom is a cause
_WEAK = 5  # from this order on it is one from afar, or none
_VAGUE_AT = 6  # the order of those of NCCL that say no more
_SAYS_NO_MORE = ("nccl-network", "nccl-cuda")
_NCCL_WARNS = re.compile(r"\S+ NCCL WARN (?!Call to CUDA function failed|Failed to open lib).*")


def symptoms(log: str) -> list[Finding]:
    """A finding for every symptom that the log shows, told from its first place in it; causes before others."""
    raised, first = exceptions.first_of(log) or (None, "")
    log = lines.shortened(log)
    failed = log.find(first) if first else -1
    began = overcome.since(log, failed if failed >= 0 else len(log))
    later = lines.told_apart(log[began:])[0] if began else ""
    log = overcome.went_on(log, began)
    errors, warnings = lines.told_apart(log)
    # srun's bare label counts the tasks of its step: where ranks name themselves, it is another step's.
    label = "task" if _NAMES_RANKS.search(log) else "rank"
    own = raised is not None and raised.name == "raised"
    since = errors.find(first) if own else -1
    failed_at = errors.find(first) if first and not _OF_A_CONNECTION.search(first) else -1
    ended_at = report.start() if (report := _REPORTED.search(errors)) else len(errors)
    gave_up = {found["rank"]: found.start() for found in reversed([*GAVE_UP.finditer(errors)])}
    seen: list[_Seen] = []
    for symptom in SYMPTOMS:
        for text, order in ((errors, symptom.order), (warnings, WARNED)):
            if (found := lines.first(symptom, text)) is not None:
                late = symptom.name in _MAY_FOLLOW and 0 <= failed_at < found.start() - len(first)
                late |= symptom.name in (*_MAY_FOLLOW, "rank-lost") and ended_at < found.start()
                if late or (symptom.name in _OF_THE_GPU and _after(gave_up, found, text)):
                    order = max(order, _FOLLOWS)
                if lines.INFO in lines.line_of(found, text):
                    order = max(order, _WEAK if failed_at < 0 else _VAGUE_AT + 1)
                mild = (
                    text is errors
                    and order <= _A_CAUSE
                    and overcome.may_be(symptom.name, lines.line_of(found, text))
                )
                lived_through = mild and bool(began) and lines.first(symptom, later) is None
                told = _told(symptom, found, text, order, errors + warnings, label)
                seen.append(_Seen(order, found.start(), told, mild, lived_through, lines.line_of(found, text)))
                break
    if own and any(lines.first(symptom, f"{first}\n") for symptom in SYMPTOMS if symptom.order <= _A_CAUSE):
        own, since = False, -1  # a rule knows more of that exception
    _overcome(seen, since, raised is not None or _is_killed(log))
    lost = min((one.at for one in seen if one.told.name in _LOST), default=len(errors))
    for one in seen:
        if one.told.name in _MAY_FOLLOW and one.told.name not in _LOST and "\n" in errors[lost : one.at]:
            one.follow()
    seen.sort(key=lambda one: (one.order, one.at))
    for one in seen[1:]:  # a cause may be told after what is seen of it
        if one.order <= max(seen[0].order, _A_CAUSE) and brings_about(one.told.name, seen[0].told.name):
            seen.remove(one)
            seen.insert(0, replace(one, told=replace(one.told, order=seen[0].told.order)))
            break
    # Of one and the same line, the first has said what there is to say; of one traceback it is the cause.
    seen = [one for n, one in enumerate(seen) if all(one.line != other.line for other in seen[:n])]
    seen = _one_of_a_chain(seen, errors, chained(log))
    if seen and seen[0].order >= AFTER_ALL:  # what is said before it; or at all, if it is but a warning
        end = len(errors) if seen[0].order == WARNED else errors.rfind("\n", 0, seen[0].at) + 1
        if (error := _first_error(errors[:end])) is not None:
            return [error, *(one.told for one in seen)]
    doubt = _in_doubt(seen, errors, raised if own else None, since)
    return [*doubt, *(one.told for one in seen)]


def stopped_by(log: str, *, trained: bool) -> set[str]:
    """The symptoms of what ended a process, or kept it from beginning: no complaint that a program lives "
    "through."""
    errors, _ = lines.told_apart(lines.shortened(log))
    found = {one: lines.first(one, errors) for one in SYMPTOMS if one.order <= _A_CAUSE}
    return {
        one.name
        for one, place in found.items()
        if place is not None
        and not overcome.may_be(one.name, lines.line_of(place, errors))
        and not (trained and one.name in BEFORE_IT_RAN and one.name != "step-waits")  # which lasts until then
    }


def complains(log: str) -> bool:
    """Whether a log speaks of an error that is no consequence of another process's end."""
    errors, _ = lines.told_apart(overcome.without_tries(lines.shortened(log)))
    known = any(lines.first(one, errors) for one in SYMPTOMS if one.order < AFTER_ALL)
    return known or _first_error(errors) is not None


@dataclass
class _Seen:
    """A symptom in a log: its order, its place, whether a program may live through it or did, and its line."""

    order: int
    at: int
    told: Finding
    mild: bool
    lived_through: bool
    line: str

    def follow(self) -> None:
        self.order = _FOLLOWS
        self.told = replace(self.told, order=_FOLLOWS)


def _one_of_a_chain(seen: list[_Seen], errors: str, chains: list[set[str]]) -> list[_Seen]:
    """What was seen, without what the traceback of an earlier one says too, and nothing else does."""
    if not chains:
        return seen
    outside = "".join(
        line
        for line in errors.splitlines(keepends=True)
        if not any(line.rstrip("\n") in chain for chain in chains)
    )
    by_name = {symptom.name: symptom for symptom in SYMPTOMS}
    return [
        one
        for n, one in enumerate(seen)
        if not any(one.line in chain and other.line in chain for chain in chains for other in seen[:n])
        or lines.first(by_name[one.told.name], outside) is not None
    ]


def _overcome(seen: list[_Seen], since: int, ended_later: bool) -> None:
    """Put last what the program lived through, where something else is known to have ended it."""
    strong = [one for one in seen if one.order < _WEAK and not one.lived_through]
    for one in seen:
        ran = [other for other in strong if needs_a_run(other.told.name) and other.at > one.at]
        if any(brings_about(one.told.name, other.told.name) for other in strong):
            continue
        began_all_the_same = one.mild and one.told.name in BEFORE_IT_RAN and (ran or 0 <= one.at < since)
        if began_all_the_same or (one.lived_through and (ended_later or strong)):
            one.follow()


def _is_killed(log: str) -> bool:
    end = ended(log)
    return end is not None and end.name in ("killed", "ended-by-signal")


def _in_doubt(seen: list[_Seen], log: str, raised: Finding | None, since: int) -> list[Finding]:
    """That it is not known which of two was the cause, where both look like one and neither explains the "
    "other."""
    if not seen or not (cause := seen[0]).order <= _VAGUE_AT:
        return []
    rivals = [other for other in seen[1:] if _rivals(cause, other, log)]
    if rivals:
        names = f"{cause.told.name} and {rivals[0].told.name}"
    elif raised and cause.mild and cause.at < since and _are_apart(cause, raised):
        names = f"{cause.told.name}, and an error of its own: {raised.saw}"
    elif cause.told.name in _SAYS_NO_MORE and (warned := _NCCL_WARNS.search(log)):
        return [Finding(UNKNOWN, f"NCCL says: {one_line(warned[0], 300)}", _NO_RULE, LOOK_IT_UP, cause.order)]
    else:
        return []
    first = found.saw if (found := _first_error(log)) else ""
    saw = f"Two things that neither explains the other, {names}. {first}"
    return [Finding(UNKNOWN, saw, _EITHER, LOOK_IT_UP, order=cause.order)]


def _are_apart(cause: _Seen, raised: Finding) -> bool:
    return may_be_another_matter(cause.told.name) and not overcome.is_about_the_same(cause.told.saw, raised.saw)


def _rivals(cause: _Seen, other: _Seen, log: str) -> bool:
    """Whether two symptoms, the first of them the likelier cause, may each have been it."""
    began_all_the_same = cause.mild and cause.told.name in BEFORE_IT_RAN
    if brings_about(cause.told.name, other.told.name):
        return False
    if explains(cause.told.name, other.told.name) and not began_all_the_same:
        return False
    if "\n" not in log[min(cause.at, other.at) : max(cause.at, other.at)]:  # of one and the same line
        return False
    if began_all_the_same:
        return needs_a_run(other.told.name)
    return 0 < cause.order <= _A_CAUSE and (
        cause.order == other.order or (other.order <= _A_CAUSE and other.at < cause.at)
    )


def _after(gave_up: dict[str, int], found: re.Match[str], text: str) -> bool:
    """Whether its rank, or any if it does not name its own, had given up waiting before it said this."""
    who = RANK.match(lines.line_of(found, text))
    since = [at for rank, at in gave_up.items() if who is None or rank == (who[1] or who[2])]
    return any(at < found.start() for at in since)


def _told(symptom: Symptom, found: re.Match[str], text: str, order: int, whole: str, label: str) -> Finding:
    line = lines.line_of(found, text)
    rank = RANK.match(line)
    said = {name: one_line(text or "", 200).rstrip(". ") for name, text in found.groupdict().items()}
    if "ms" in said:
        said["seconds"] = f"{int(said['ms'][:12]) / 1000:g}"
    said["line"] = one_line(RANK.sub("", line).removeprefix("main.py: "), 200)
    said["of"] = f" of {label if rank[2] else 'rank'} {rank[1] or rank[2]}" if rank else ""
    said["rank"] = f"{label if rank[2] else 'rank'} {rank[1] or rank[2]} " if rank else ""
    saw, means, do = symptom.saw, symptom.means, symptom.do
    for case in symptom.cases:
        if (more := case.pattern.search(whole if case.anywhere else lines.around(found, text))) is not None:
            said |= {name: one_line(value or "", 200) for name, value in more.groupdict().items()}
            saw, means, do = case.saw or saw, case.means.format_map(defaultdict(str, said)), case.do
            break
    saw = saw.format_map(defaultdict(str, said))
    do = tuple(_KNOWN.sub(lambda name: said.get(name[1], name[0]), command) for command in do)
    saw = saw if saw.startswith(_PROGRAMS) else saw[:1].upper() + saw[1:]
    return Finding(symptom.name, saw, means, do, order)


def first_error(log: str, *, alone: bool = True) -> Finding | None:
    """The first line of a log that speaks of an error, where no rule knows it.

    Args:
        alone: nothing else is known: then one that follows from another process's counts too.
    """
    errors, _ = lines.told_apart(lines.shortened(log))
    return _first_error(errors) or (_first_error(errors, follows=True) if alone else None)


def _first_error(errors: str, *, follows: bool = False) -> Finding | None:
    for found in _SPEAKS.finditer(errors):
        if exceptions.is_consequence(found[0]) == follows and not _OF_THE_END.search(found[0]):
            saw = f"The first line that speaks of an error: {one_line(found[0], 300)}"
            return Finding(UNKNOWN, saw, _NO_RULE, LOOK_IT_UP, order=7)
    return None
