"""Where the time of a training step goes, and what holds it up: the arithmetic behind --profile."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

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
    launch: float  # the GPU has nothing to do: the CPU has not issued the next work yet. 0 on the CPU
    other: float  # on the CPU's own account: counting, printing, saving
    all_communication: float  # the hidden part too
    hidden: float  # of it, while something computes
    hidden_by_backward: float  # of that, while the backward pass computes


def account(trace: Trace, step: float | None, data: float | None) -> Figures:
    """One rank's figures.

    Args:
        step: milliseconds of a step without the profiler, None where that was not measured.
        data: of these, how many the CPU was busy with the next batch.
    """
    return _account_of_gpu(trace, step, data) if trace.on_gpu else _account_of_cpu(trace, step)


def _account_of_gpu(trace: Trace, step: float | None, data: float | None) -> Figures:
    """Tracing makes the CPU slower, but no kernel. So the kernels' times are taken from the trace, and what is
    left of a step without the profiler is the time in which the GPU had nothing to do.
    """

    def per_step(intervals: list[Interval]) -> float:
        return length(intervals) / trace.steps / 1000

    spent: dict[str, float] = {}
    before: list[Interval] = []
    for part in (FORWARD, BACKWARD, OPTIMIZER, GRAPH, OTHER):  # of kernels at the same time, the first counts
        spent[part] = per_step(difference(trace.work[part], before))
        before = union([*before, *trace.work[part]])
    computing = sum(spent.values())
    waiting = difference(trace.communication, before)
    idle = difference([trace.window], union([*before, *trace.communication]))
    copying = difference(trace.work[DATA], union([*before, *trace.communication]))
    hidden = intersection(trace.communication, before)
    traced = (trace.window[1] - trace.window[0]) / trace.steps / 1000

    whole = max(traced if step is None else step, computing)
    exposed = min(per_step(waiting), whole - computing)
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
        other=spent[OTHER],
        all_communication=per_step(trace.communication),
        hidden=per_step(hidden),
        hidden_by_backward=per_step(intersection(trace.communication, trace.work[BACKWARD])),
    )


def _account_of_cpu(trace: Trace, step: float | None) -> Figures:
    """The CPU's own time in each part, less that in which a collective runs and no operator does."""

    def per_step(intervals: list[Interval]) -> float:
        return length(intersection(intervals, [trace.window])) / trace.steps / 1000

    computing = union(interval for intervals in trace.work.values() for interval in intervals)
    waiting = difference(trace.communication, computing)
    spent = {part: per_step(difference(spans, waiting)) for part, spans in trace.parts.items()}
    traced = (trace.window[1] - trace.window[0]) / trace.steps / 1000
    exposed = per_step(waiting)
    scale = 1 if step is None else step / traced  # the operators themselves are hardly slower under the profiler
    return Figures(
        step=traced * scale,
        traced_step=traced,
        data=spent[DATA] * scale,
        forward=spent[FORWARD] * scale,
        backward=spent[BACKWARD] * scale,
        optimizer=spent[OPTIMIZER] * scale,
        graph=0.0,
        communication=exposed * scale,
        launch=0.0,
        other=(traced - sum(spent.values()) - exposed) * scale,
        all_communication=per_step(trace.communication) * scale,
        hidden=per_step(intersection(trace.communication, computing)) * scale,
        hidden_by_backward=per_step(
            intersection(intersection(trace.communication, computing), trace.parts[BACKWARD])
        )
        * scale,
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
    return order[0], f"{order[0]}: of a step of {figures.step:.3g} ms the {device} {said}"


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
        ("launch", figures.launch, "the GPU is idle: the CPU has not issued the next work"),
        ("other", figures.other, "between the steps"),
    ]
    skipped = {"graph"} if figures.graph == 0 else {"forward", "backward", "optimizer"}
    if not on_gpu:
        skipped.add("launch")
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
    parts = ("data", "forward", "backward", "optimizer", "graph", "communication", "launch", "other")
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
