"""Where the time of a training step goes, and what holds it up: the arithmetic behind --profile."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from lab.base.words import digits
from lab.training.profiling.intervals import Interval, difference, intersection, length, union
from lab.training.profiling.phases import BACKWARD, DATA, FORWARD, GRAPH, OPTIMIZER
from lab.training.profiling.trace import OTHER, Trace

VERDICTS = {  # -> what there is most of
    "compute-bound": "computes",
    "communication-bound": "waits for communication",
    "data-bound": "waits for data",
    "launch-bound": "waits for the CPU to issue work",
}


@dataclass(frozen=True)
class Figures:
    """Milliseconds of one step. From `data` to `other` each moment of it is counted once."""

    step: float  # without the profiler, where that was measured
    traced_step: float  # with the profiler at work
    data: float  # nothing to compute: the next batch is not there
    forward: float
    backward: float
    optimizer: float
    graph: float  # a captured step: forward, backward and optimizer in one
    communication: float  # nothing computes meanwhile
    launch: float  # the GPU's: no work is issued, here or on the rank that a collective waits for. 0 on the CPU
    late: float  # the CPU's: waiting in a collective for a rank that has not come to it. 0 on a GPU
    other: float  # on the CPU's own account: counting, printing, saving
    collectives: float  # from the moment this rank joins in until they are done: waiting, and communication
    all_communication: float  # once the last rank has joined in; the hidden part too
    hidden: float  # of it, while something computes
    hidden_by_backward: float  # of that, while the backward pass computes


def communicating(ranks: Sequence[Mapping[tuple[str, int], float]]) -> dict[tuple[str, int], float]:
    """How long each collective takes once the last rank has joined in: its duration on that very rank.

    Args:
        ranks: Trace.durations of each.
    """
    common = set(ranks[0]).intersection(*ranks[1:])
    return {key: min(durations[key] for durations in ranks) for key in common}


def account(
    trace: Trace, step: float | None, data: float | None, times: Mapping[tuple[str, int], float]
) -> Figures:
    """One rank's figures.

    Args:
        step: milliseconds of a step without the profiler, None where that was not measured.
        data: of these, how many the CPU was busy with the next batch, on the rank where it was longest.
        times: what communicating() found; what a collective takes longer than that is waiting for a late rank.
    """
    # What is communicated comes last: a collective ends on all ranks together.
    communication = union(
        (max(begin, end - times.get(key, end - begin)), end) for key, (begin, end) in trace.collectives.items()
    )
    if trace.on_gpu:
        return _account_of_gpu(trace, communication, step, data)
    return _account_of_cpu(trace, communication, step)


def _account_of_gpu(
    trace: Trace, communication: list[Interval], step: float | None, data: float | None
) -> Figures:
    """Tracing makes the CPU slower, but no kernel. So the kernels' times are taken from the trace, and what is
    left of a step without the profiler is the time in which the GPU had nothing to do. A kernel of a collective
    that only waits for a late rank is nothing to do: in a launch-bound step some rank is always late.
    """

    def per_step(intervals: list[Interval]) -> float:
        return length(intervals) / trace.steps / 1000

    spent: dict[str, float] = {}
    before: list[Interval] = []
    for part in (FORWARD, BACKWARD, OPTIMIZER, GRAPH, OTHER):  # of kernels at the same time, the first counts
        spent[part] = per_step(difference(trace.work[part], before))
        before = union([*before, *trace.work[part]])
    computing = sum(spent.values())
    busy = union([*before, *communication])
    idle = difference([trace.window], busy)
    copying = difference(trace.work[DATA], busy)
    traced = (trace.window[1] - trace.window[0]) / trace.steps / 1000

    whole = max(traced if step is None else step, computing)
    exposed = min(per_step(difference(communication, before)), whole - computing)
    rest = whole - computing - exposed
    if data is None:
        data = per_step(union([*intersection(idle, trace.parts[DATA]), *copying]))
    data = min(data, rest)
    return Figures(
        step=whole,
        traced_step=traced,
        data=data,
        forward=spent[FORWARD],
        backward=spent[BACKWARD],
        optimizer=spent[OPTIMIZER],
        graph=spent[GRAPH],
        communication=exposed,
        launch=rest - data,
        late=0.0,
        other=spent[OTHER],
        collectives=per_step(union(trace.collectives.values())),
        all_communication=per_step(communication),
        hidden=per_step(intersection(communication, before)),
        hidden_by_backward=per_step(intersection(communication, trace.work[BACKWARD])),
    )


def _account_of_cpu(trace: Trace, communication: list[Interval], step: float | None) -> Figures:
    """The CPU's own time in each part, less that in which a collective runs and no operator does."""
    traced = (trace.window[1] - trace.window[0]) / trace.steps / 1000
    scale = 1 if step is None else step / traced  # the operators themselves are hardly slower under the profiler

    def per_step(intervals: list[Interval]) -> float:
        return length(intersection(intervals, [trace.window])) / trace.steps / 1000 * scale

    computing = union(interval for intervals in trace.work.values() for interval in intervals)
    collectives = union(trace.collectives.values())
    waiting = difference(collectives, computing)
    spent = {part: per_step(difference(spans, waiting)) for part, spans in trace.parts.items()}
    exposed, hidden = per_step(difference(communication, computing)), intersection(communication, computing)
    return Figures(
        step=traced * scale,
        traced_step=traced,
        data=spent[DATA],
        forward=spent[FORWARD],
        backward=spent[BACKWARD],
        optimizer=spent[OPTIMIZER],
        graph=0.0,
        communication=exposed,
        launch=0.0,
        late=per_step(waiting) - exposed,
        other=traced * scale - sum(spent.values()) - per_step(waiting),
        collectives=per_step(collectives),
        all_communication=per_step(communication),
        hidden=per_step(hidden),
        hidden_by_backward=per_step(intersection(hidden, trace.parts[BACKWARD])),
    )


def mean(ranks: Sequence[Figures]) -> Figures:
    """Of all ranks."""
    return Figures(
        **{field.name: sum(getattr(one, field.name) for one in ranks) / len(ranks) for field in fields(Figures)}
    )


def computing(figures: Figures) -> float:
    """Milliseconds of a step in which something computes."""
    return figures.forward + figures.backward + figures.optimizer + figures.graph


def verdict(figures: Figures, *, on_gpu: bool) -> tuple[str, str]:
    """What a step spends most of its time on, and a sentence with the figures behind it."""
    device = "GPU" if on_gpu else "CPU"
    times = {
        "compute-bound": computing(figures) + (figures.other if on_gpu else 0.0),
        "communication-bound": figures.communication,
        "data-bound": figures.data,
        "launch-bound": figures.launch,
    }
    if not on_gpu:
        del times["launch-bound"]
    order = sorted(times, key=lambda name: -times[name])
    said = ", ".join(f"{VERDICTS[name]} {times[name] / figures.step:.0%}" for name in order)
    said += f", waits for late ranks {figures.late / figures.step:.0%}" if figures.late else ""
    return order[0], f"{order[0]}: of a step of {digits(figures.step, 3)} ms the {device} {said}"


def utilisation(figures: Figures) -> float:
    """The fraction of a step in which some kernel runs, communication's too."""
    return (figures.step - figures.data - figures.launch) / figures.step


def columns(figures: Figures, steps_per_epoch: int, *, on_gpu: bool) -> dict[str, float]:
    """The profiled columns of run.csv: seconds of an epoch of such steps, and the GPU's utilisation."""
    seconds = steps_per_epoch / 1000
    row = {
        "dl_time_s": figures.data * seconds,
        "fw_time_s": figures.forward * seconds,
        "bw_time_s": figures.backward * seconds,
        "comm_time_s": figures.communication * seconds,
    }
    return row | ({"util_gpu": utilisation(figures)} if on_gpu else {})


def describe(figures: Figures, *, on_gpu: bool, separate_backward: bool) -> list[str]:
    """For people, line by line."""
    rows = [
        ("data", figures.data, "waiting for the next batch" + " and copying it" * on_gpu),
        (
            "forward",
            figures.forward,
            "" if separate_backward else "backward too: train_step() calls loss.backward()",
        ),
        ("backward", figures.backward, ""),
        ("optimizer", figures.optimizer, ""),
        ("graph", figures.graph, "forward, backward and optimizer: the captured step"),
        ("communication", figures.communication, _hiding(figures)),
        ("launch", figures.launch, "the GPU is idle: the next work is not issued, here or on a late rank"),
        ("late ranks", figures.late, "waiting in a collective for a rank that is not there yet"),
        ("other", figures.other, "between the steps"),
    ]
    skipped = {"graph"} if figures.graph == 0 else {"forward", "backward", "optimizer"}
    skipped.add("late ranks" if on_gpu else "launch")
    if not separate_backward:
        skipped.add("backward")
    return [
        f"  {name:<14} {time:8.2f} ms {time / figures.step:5.0%}   {note}".rstrip()
        for name, time, note in rows
        if name not in skipped
    ]


def _hiding(figures: Figures) -> str:
    if figures.all_communication == 0:
        return "there is none"
    hidden = figures.hidden / figures.all_communication
    behind = figures.hidden_by_backward / figures.all_communication
    where = f", {behind:.0%} behind the backward pass" if figures.graph == 0 else ""
    return f"{figures.all_communication:.2f} ms in all, {hidden:.0%} hidden behind computing{where}"


def as_record(ranks: Sequence[Figures], *, on_gpu: bool) -> dict[str, object]:
    """What summary.json says of the figures."""
    whole = mean(ranks)
    name, sentence = verdict(whole, on_gpu=on_gpu)
    parts = ("data", "forward", "backward", "optimizer", "graph", "communication", "launch", "late", "other")
    return {
        "verdict": name,
        "sentence": sentence,
        "share": {part: getattr(whole, part) / whole.step for part in parts},
        "communication_hidden": whole.hidden / whole.all_communication if whole.all_communication else None,
        "communication_hidden_by_backward": (
            whole.hidden_by_backward / whole.all_communication if whole.all_communication else None
        ),
        "milliseconds": asdict(whole),
        "ranks": [asdict(figures) for figures in ranks],
    }
