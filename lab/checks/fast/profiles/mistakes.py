"""What a step's profile comes to, by cause, and what mistakes make of it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

from lab.checks.fast.profiles.draw import Span

Times = Callable[[Sequence[Span]], dict[str, float]]
Runs = Callable[[float, float, float, float], bool]  # (a span's begin, its end, a piece's begin, its end)

CAUSES = ("compute", "communication", "input", "launch")


def by_priority(
    spans: Sequence[Span], order: Sequence[str], rest: str | None, only: tuple[float, float] | None = None
) -> dict[str, float]:
    """Each piece of the step, or one, to the first of `order` that is running; else to `rest`, or to nobody."""
    times = dict.fromkeys(CAUSES, 0.0)
    for begin, end in [only] if only else pairwise(edges_of(spans)):
        running = [what for what, first, last in spans if first <= begin and last >= end]
        cause = next((cause for cause in order if cause in running), rest)
        if cause:
            times[cause] += end - begin
    return times


def added(spans: Sequence[Span]) -> dict[str, float]:
    """The lengths of all spans of each kind."""
    return {cause: sum((end - begin for what, begin, end in spans if what == cause), 0.0) for cause in CAUSES}


def each_alone(spans: Sequence[Span]) -> dict[str, float]:
    """How long each kind was running, whatever else was."""
    return {cause: by_priority(spans, [cause], None)[cause] for cause in CAUSES}


def from_zero(spans: Sequence[Span]) -> dict[str, float]:
    """The time before the first span counts as a gap."""
    times = by_priority(spans, CAUSES, "launch")
    return times | {"launch": times["launch"] + min(begin for _, begin, _ in spans)}


def first_begun(spans: Sequence[Span]) -> dict[str, float]:
    """Each piece to the kind of the span that has been running the longest."""
    times = dict.fromkeys(CAUSES, 0.0)
    for begin, end in pairwise(edges_of(spans)):
        running = [(first, last, what) for what, first, last in spans if first <= begin and last >= end]
        times[min(running)[2] if running else "launch"] += end - begin
    return times


def listed(spans: Sequence[Span], place: int) -> dict[str, float]:
    """Each piece to the kind of the span that the profile has first (0) or last (-1) of those that are running."""
    times = dict.fromkeys(CAUSES, 0.0)
    for begin, end in pairwise(edges_of(spans)):
        running = [what for what, first, last in spans if first <= begin and last >= end]
        times[running[place] if running else "launch"] += end - begin
    return times


def running_in(spans: Sequence[Span], edges: Sequence[float], runs: Runs) -> dict[str, float]:
    """Each piece between two edges to the first of CAUSES of which a span runs in it, as `runs` has it."""
    times = dict.fromkeys(CAUSES, 0.0)
    for begin, end in pairwise(edges):
        running = [what for what, first, last in spans if runs(first, last, begin, end)]
        times[next((cause for cause in CAUSES if cause in running), "launch")] += end - begin
    return times


def touching(runs: Runs) -> Times:
    """All edges, but what only touches a piece counts."""
    return lambda spans: running_in(spans, edges_of(spans), runs)


def fewer_edges(begins: bool, runs: Runs) -> Times:
    """The step cut at begins only, or at ends only: what changes in between is not seen."""

    def times_of(spans: Sequence[Span]) -> dict[str, float]:
        edges = {min(begin for _, begin, _ in spans), max(end for _, _, end in spans)}
        edges |= {begin if begins else end for _, begin, end in spans}
        return running_in(spans, sorted(edges), runs)

    return times_of


def names_noted(ends_first: bool) -> Times:
    """A sweep that notes which kinds are running: where one of two spans ends, its kind is taken for over."""

    def times_of(spans: Sequence[Span]) -> dict[str, float]:
        at_end, at_begin = (0, 1) if ends_first else (1, 0)
        events = [(begin, at_begin, what) for what, begin, _ in spans]
        events = sorted(events + [(end, at_end, what) for what, _, end in spans])
        times, active, before = dict.fromkeys(CAUSES, 0.0), set[str](), events[0][0]
        for now, way, what in events:
            times[next((cause for cause in CAUSES if cause in active), "launch")] += now - before
            before = now
            active = active | {what} if way == at_begin else active - {what}
        return times

    return times_of


def last_pieces(spans: Sequence[Span]) -> dict[str, float]:
    """The length of the last piece of each cause."""
    times = dict.fromkeys(CAUSES, 0.0)
    for cause, length in by_piece(spans):
        times[cause] = length
    return times


def pieces_counted(spans: Sequence[Span]) -> dict[str, float]:
    """How many pieces each cause has."""
    found = [cause for cause, _ in by_piece(spans)]
    return {cause: float(found.count(cause)) for cause in CAUSES}


def by_piece(spans: Sequence[Span]) -> list[tuple[str, float]]:
    """The cause of each piece, and its length."""
    pairs = pairwise(edges_of(spans))
    times = [(by_priority([*spans], CAUSES, "launch", only=pair), pair) for pair in pairs]
    return [(next(cause for cause in CAUSES if own[cause]), end - begin) for own, (begin, end) in times]


def half_hidden(by: str) -> Times:
    """The wait for input less what one kind of kernel hides of it: the other hides some, too."""

    def times_of(spans: Sequence[Span]) -> dict[str, float]:
        times = by_priority(spans, CAUSES, "launch")
        return times | {"input": by_priority(spans, [by, "input"], None)["input"]}

    return times_of


def edges_of(spans: Sequence[Span]) -> list[float]:
    return sorted({edge for _, *both in spans for edge in both})


def until_last_begun(spans: Sequence[Span]) -> dict[str, float]:
    """The step ends with the span that begins last."""
    stop = max(spans, key=lambda span: span[1])[2]
    return by_priority([(what, begin, min(end, stop)) for what, begin, end in spans], CAUSES, "launch")


def merged(spans: Sequence[Span], kinds: Sequence[str]) -> list[Span]:
    """Spans that overlap made one, of the first of `kinds`: it ends where the last of them to begin does."""
    found: list[Span] = []
    for begin, end in sorted((begin, end) for what, begin, end in spans if what in kinds):
        if found and begin <= found[-1][2]:
            found[-1] = (kinds[0], found[-1][1], end)
        else:
            found.append((kinds[0], begin, end))
    return found


def inner_ends(together: bool) -> Times:
    """An inner span ends what it lies in. `together`: of its kind and those that come before it in CAUSES."""

    def times_of(spans: Sequence[Span]) -> dict[str, float]:
        step = [("launch", min(begin for _, begin, _ in spans), max(end for _, _, end in spans))]
        for place, cause in enumerate(CAUSES[:-1]):
            step += merged(spans, [cause, *CAUSES[: place * together]])
        return by_priority(step, CAUSES, "launch")

    return times_of


def end_set_back(spans: Sequence[Span]) -> dict[str, float]:
    """How far the spans of a kind, and of those before it, reach: an inner span sets the end back for the next."""
    reach = [0.0]
    for place in range(len(CAUSES) - 1):
        length, until = 0.0, -inf
        for _, begin, end in sorted(
            (span for span in spans if span[0] in CAUSES[: place + 1]), key=lambda one: one[1]
        ):
            length += max(0.0, end - max(begin, until))
            until = end
        reach.append(length)
    whole = max(end for _, _, end in spans) - min(begin for _, begin, _ in spans)
    return dict(zip(CAUSES, (after - before for before, after in pairwise([*reach, whole])), strict=True))


# What leads to other times: the name, the times, and what they mean.
OVERLAP = "What runs under a compute kernel costs the step nothing: each moment has one cause."
Mistake = tuple[str, Times, str]
_ANY_ORDER = "Spans come in any order: of all that is running, the first of CAUSES is what the step waits for."
_TOUCHING = "A span that ends where a piece begins does not run in it: ask for those that run from edge to edge."
_EDGES = "What is running changes where a span begins, and where one ends: a piece lies between two of all these."
_STRICT = "A span runs in the pieces that it begins and ends with, too: compare with <= and >=."
_LAST = "Of all that is running, the step waits for the first of CAUSES: go no further when it is found."
_ONE_END = "Two of a kind may run at once: where one ends, the other goes on. Count how many are running."
_INNER_END = "A span may lie within another, and end first: together they last until the later of the two ends."
MISTAKES: tuple[Mistake, ...] = (
    ("spans-added", added, "Spans run at the same time: added up, moments count twice, and idle ones never."),
    ("overlap-counted-twice", each_alone, OVERLAP),
    (
        "communication-before-compute",
        lambda spans: by_priority(spans, ("communication", "compute", "input"), "launch"),
        "Communication under a kernel is hidden: without it, the step would be no shorter.",
    ),
    (
        "input-before-kernels",
        lambda spans: by_priority(spans, ("input", "compute", "communication"), "launch"),
        "While the GPU works, a CPU that waits for its next batch holds nothing up.",
    ),
    (
        "launch-before-kernels",
        lambda spans: by_priority(spans, ("launch", "compute", "communication", "input"), "launch"),
        "Launches under kernels are how it should be: the CPU is ahead of the GPU.",
    ),
    (
        "launch-before-input",
        lambda spans: by_priority(spans, ("compute", "communication", "launch", "input"), "launch"),
        "Launches that are noted while the CPU waits for a batch do not shorten the wait: input comes first.",
    ),
    (
        "launch-before-kernels",  # the last in the alphabet
        lambda spans: by_priority(spans, ("launch", "input", "compute", "communication"), "launch"),
        "Launches under kernels are how it should be: the CPU is ahead of the GPU.",
    ),
    ("last-of-causes", lambda spans: by_priority(spans, CAUSES[::-1], "launch"), _LAST),
    ("last-of-causes", lambda spans: by_priority(spans, CAUSES[2::-1], "launch"), _LAST),
    (
        "first-begun-first",
        first_begun,
        "What has begun first is not what the step waits for: of all that is running, the first of CAUSES is.",
    ),
    ("order-of-the-profile", lambda spans: listed(spans, 0), _ANY_ORDER),
    ("order-of-the-profile", lambda spans: listed(spans, -1), _ANY_ORDER),
    (
        "step-cut-short",
        until_last_begun,
        "The span that begins last need not end last: the step ends where the last of all ends.",
    ),
    (
        "gaps-left-out",
        lambda spans: by_priority(spans, CAUSES, None),
        "The CPU does more between launches than a profile notes: a GPU without work waits for launches.",
    ),
    (
        "gaps-as-input",
        lambda spans: by_priority(spans, CAUSES, "input"),
        "Where the CPU does not wait for a batch, the input is not what the GPU waits for.",
    ),
    (
        "gaps-as-input",  # and launches
        lambda spans: by_priority(spans, CAUSES[:2], "input"),
        "Where the CPU does not wait for a batch, the input is not what the GPU waits for.",
    ),
    ("counted-from-zero", from_zero, "A profile's clock starts anywhere: the step begins with its first span."),
    ("last-piece-only", last_pieces, "A cause has many pieces: add each of them to those before."),
    ("pieces-counted", pieces_counted, "A piece counts with its length, from its begin to its end."),
    ("touching-spans-counted", touching(lambda first, last, begin, end: first <= begin <= last), _TOUCHING),
    ("touching-spans-counted", touching(lambda first, last, begin, end: first <= end <= last), _TOUCHING),
    (
        "touching-spans-counted",
        touching(lambda first, last, begin, end: first <= end and begin <= last),
        _TOUCHING,
    ),
    ("edges-not-counted", touching(lambda first, last, begin, end: first < begin and end < last), _STRICT),
    ("edges-not-counted", touching(lambda first, last, begin, end: first < begin and end <= last), _STRICT),
    ("edges-not-counted", touching(lambda first, last, begin, end: first <= begin and end < last), _STRICT),
    ("edges-left-out", fewer_edges(True, lambda first, last, begin, end: first <= begin and end <= last), _EDGES),
    ("edges-left-out", fewer_edges(True, lambda first, last, begin, end: first <= begin < last), _EDGES),
    ("edges-left-out", fewer_edges(False, lambda first, last, begin, end: first <= begin and end <= last), _EDGES),
    ("edges-left-out", fewer_edges(False, lambda first, last, begin, end: first < end <= last), _EDGES),
    ("one-end-ends-all", names_noted(True), _ONE_END),
    ("one-end-ends-all", names_noted(False), _ONE_END),
    ("inner-end-taken", inner_ends(together=False), _INNER_END),
    ("inner-end-taken", inner_ends(together=True), _INNER_END),
    ("inner-end-taken", end_set_back, _INNER_END),
)
# The same of a single cause, where the others are right or have it, too.
OF_ONE_CAUSE: tuple[Mistake, ...] = (
    ("overlap-counted-twice", each_alone, OVERLAP),
    (
        "overlap-counted-twice",
        half_hidden("compute"),
        "What runs under communication costs the step nothing: each moment has one cause.",
    ),
    ("overlap-counted-twice", half_hidden("communication"), OVERLAP),
    MISTAKES[0],
)
