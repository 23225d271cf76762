"""Where a step's time goes, from traces whose intervals are known, and from a run's own."""

import csv
import gzip
import itertools
import json
from dataclasses import replace

import pytest

from lab.base.errors import UsageError
from lab.runs import options
from lab.training.profiling.intervals import difference, intersection, length, union
from lab.training.profiling.summary import account, as_record, columns, communicating, describe, mean, verdict
from lab.training.profiling.trace import make_trace, read_trace
from lab.training.watching.profiler import TIMED, TRACED, WARM_UP, Window, choose_window

MS = 1000.0  # a trace counts microseconds


def test_sets_of_moments():
    first, second = union([(4, 6), (0, 2), (1, 3), (6, 7)]), union([(2, 5), (9, 9)])
    assert first == [(0, 3), (4, 7)]
    assert second == [(2, 5)]
    assert intersection(first, second) == [(2, 3), (4, 5)]
    assert difference(first, second) == [(0, 2), (5, 7)]
    assert difference(first, []) == first
    assert difference([], first) == []
    assert difference(second, [(0, 10)]) == []
    assert length(first) == 6


@pytest.mark.parametrize("steps", range(1, 60))
def test_the_window_lies_in_the_epoch(steps):
    window = choose_window(steps)
    assert window.traced >= 1
    assert window.skipped + window.timed + window.settling + window.traced <= steps
    assert min(window.skipped, window.timed, window.settling) >= 0
    assert window.skipped > 0 or window.timed == 0  # the first step is never timed


def test_the_window_is_whole_where_the_epoch_is_long():
    assert choose_window(1000) == Window(WARM_UP, TIMED, 1, TRACED)
    assert choose_window(1) == Window(0, 0, 0, 1)


# ---- synthetic traces: (name, category, begin in ms, milliseconds, more)


def event(name, category, begin, duration, thread=1, **args):
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": 1e6 + begin * MS,
        "dur": duration * MS,
        "tid": thread,
        "args": args,
    }


def parts(*spans, begin=0.0):
    """Ranges one after the other: (part, milliseconds); part None is time between them."""
    events = []
    for part, duration in spans:
        if part:
            events.append(event(f"step/{part}", "user_annotation", begin, duration))
        begin += duration
    return events


CORRELATIONS = itertools.count()


def kernel(name, launched, begin, duration, stream=7):
    correlation = next(CORRELATIONS)
    return [
        event("cudaLaunchKernel", "cuda_runtime", launched, 0.01, thread=2, correlation=correlation),
        event(name, "kernel", begin, duration, thread=stream, correlation=correlation),
    ]


def look(events, step=None, data=None, times=None):
    return account(make_trace(events), step, data, times or {})


def gpu_step(begin, *, data=1.0, late=0.0, communication=3.0):
    """10 ms: the CPU fetches for `data` ms and is done with launching after 4 more. The GPU computes 2 + 3 + 1 ms,
    `late` ms after the launches, and communicates from 1.5 ms before the backward pass ends.
    """
    launched = begin + data
    forward = launched + late
    backward = forward + 2
    optimizer = backward + 1.5 + communication
    return [
        event(f"ProfilerStep#{begin}", "user_annotation", begin, 10),
        *parts(("data", data), ("forward", 1), ("backward", 2), ("optimizer", 1), begin=begin),
        *kernel("conv", launched + 0.5, forward, 2),
        *kernel("dgrad", launched + 1.5, backward, 3),
        *kernel("ncclDevKernel_AllReduce_Sum", launched + 2.5, backward + 1.5, communication, stream=20),
        *kernel("sgd", launched + 3.5, optimizer, 1),
        event("step/forward", "gpu_user_annotation", forward, 2, thread=7),  # kineto's own; counts for nothing
    ]


def test_the_time_of_a_gpu_step_is_counted_once():
    trace = make_trace([*gpu_step(0), *gpu_step(10)])
    assert trace.steps == 2
    assert trace.on_gpu
    figures = account(trace, None, None, {})
    assert figures.forward == pytest.approx(2)
    assert figures.backward == pytest.approx(3)
    assert figures.optimizer == pytest.approx(1)
    assert figures.all_communication == pytest.approx(3)
    assert figures.hidden == figures.hidden_by_backward == pytest.approx(1.5)
    assert figures.communication == pytest.approx(1.5)
    assert figures.data == pytest.approx(1)
    assert figures.launch == pytest.approx(1.5)  # after the optimizer's kernel
    assert figures.step == figures.traced_step == pytest.approx(10)


def test_kernels_belong_to_the_part_that_launched_them_however_late_they_run():
    figures = look([*gpu_step(0, late=40), *gpu_step(10, late=40)], 10.0, 1.0)
    assert (figures.forward, figures.backward, figures.optimizer) == pytest.approx((2, 3, 1))


def test_what_the_profiler_slows_down_is_not_counted():
    """10 ms under the profiler, 8 without: the kernels stay, the gaps shrink."""
    figures = look([*gpu_step(0), *gpu_step(10)], 8.0, 0.25)
    assert (figures.step, figures.traced_step) == pytest.approx((8, 10))
    assert (figures.forward, figures.backward, figures.optimizer) == pytest.approx((2, 3, 1))
    assert (figures.communication, figures.data, figures.launch) == pytest.approx((1.5, 0.25, 0.25))


def test_time_for_data_that_the_gpu_spends_computing_is_not_counted():
    """The CPU is 5 ms ahead of the GPU in fetching; without the profiler the GPU is never idle."""
    figures = look([*gpu_step(0), *gpu_step(10)], 7.5, 5.0)
    assert (figures.data, figures.launch) == pytest.approx((0, 0))


def total(figures):
    names = ("data", "forward", "backward", "optimizer", "graph", "communication", "launch", "late", "other")
    return sum(getattr(figures, name) for name in names)


def cpu_step(begin, *, data=1.0, waits=2.0):
    """A step on the CPU: operators of 3, 4 and 1 ms; a collective hidden for 2 ms, and then waited for."""
    forward, backward = begin + data, begin + data + 3
    optimizer = backward + 4 + waits
    end = optimizer + 1
    return [
        event(f"ProfilerStep#{begin}", "user_annotation", begin, end + 0.5 - begin),
        *parts(("data", data), ("forward", 3), ("backward", 4 + waits), ("optimizer", 1), begin=begin),
        event("aten::linear", "cpu_op", forward, 3),
        event("aten::addmm", "cpu_op", forward, 3),
        event("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", backward, 4 + waits),
        event("aten::mm", "cpu_op", backward, 4),
        event("c10d::allreduce_", "cpu_op", backward + 4, waits),
        event("gloo:all_reduce", "user_annotation", backward + 2, 2 + waits, thread=9),
        event("aten::add_", "cpu_op", optimizer, 1),
    ]


def test_the_time_of_a_cpu_step_is_counted_once():
    figures = look([*cpu_step(0), *cpu_step(11.5)])
    assert (figures.data, figures.forward, figures.backward, figures.optimizer) == pytest.approx((1, 3, 4, 1))
    assert (figures.communication, figures.all_communication) == pytest.approx((2, 4))
    assert figures.hidden == figures.hidden_by_backward == pytest.approx(2)
    assert figures.other == pytest.approx(0.5)
    assert figures.launch == 0
    assert total(figures) == pytest.approx(figures.step) == pytest.approx(11.5)


def test_fully_hidden_and_fully_exposed_communication():
    hidden = look(cpu_step(0, waits=0))
    assert hidden.hidden == hidden.all_communication == pytest.approx(2)
    assert hidden.communication == pytest.approx(0)
    alone = [event("gloo:all_gather", "user_annotation", 1.0, 5, thread=9)]
    step = event("ProfilerStep#1", "user_annotation", 0, 7)
    exposed = look([step, *parts(("data", 1), ("forward", 6)), *alone])
    assert (exposed.hidden, exposed.communication, exposed.forward) == pytest.approx((0, 5, 1))


def test_waiting_for_a_late_rank_is_no_communication():
    """The same collective takes 3 ms on the rank that comes last, and 11 where it was waited for."""
    late, early = [*gpu_step(0), *gpu_step(20)], [*gpu_step(0, communication=11), *gpu_step(20, communication=11)]
    times = communicating([make_trace(events).durations for events in (late, early)])
    figures = [look(events, 18.5, 0.5, times) for events in (late, early)]
    assert [one.all_communication for one in figures] == pytest.approx([3, 3])
    assert [one.collectives for one in figures] == pytest.approx([3, 11])
    assert [one.communication for one in figures] == pytest.approx([1.5, 3])  # the early one's comes last of all
    assert [one.launch for one in figures] == pytest.approx([10.5, 9])
    assert verdict(mean(figures), on_gpu=True)[0] == "launch-bound"


def test_waiting_for_a_late_rank_on_the_cpu_has_a_row_of_its_own():
    late, early = cpu_step(0, waits=0.5), cpu_step(0, waits=6)
    times = communicating([make_trace(events).durations for events in (late, early)])
    figures = look(early, times=times)
    assert (figures.communication, figures.late) == pytest.approx((2.5, 3.5))
    assert total(figures) == pytest.approx(figures.step)
    assert "waits for late ranks 23%" in verdict(figures, on_gpu=False)[1]
    assert any(line.startswith("  late ranks") for line in describe(figures, on_gpu=False, separate_backward=True))


@pytest.mark.parametrize(
    ("step", "data", "communication", "expected"),
    [
        (10.5, 0.2, 3.0, "compute-bound"),
        (16.0, 0.2, 11.0, "communication-bound"),
        (25.0, 15.0, 3.0, "data-bound"),
        (25.0, 0.2, 3.0, "launch-bound"),
    ],
)
def test_each_verdict_on_a_gpu(step, data, communication, expected):
    events = [*gpu_step(0, communication=communication), *gpu_step(20, communication=communication)]
    figures = look(events, step, data)
    assert total(figures) == pytest.approx(figures.step)
    name, sentence = verdict(figures, on_gpu=True)
    assert name == expected
    assert sentence.startswith(f"{expected}: of a step of {step:.3g} ms the GPU ")
    assert f"computes {6 / step:.0%}" in sentence
    assert f"waits for data {figures.data / step:.0%}" in sentence


@pytest.mark.parametrize(
    ("data", "waits", "expected"),
    [(1.0, 2.0, "compute-bound"), (9.0, 2.0, "data-bound"), (1.0, 12.0, "communication-bound")],
)
def test_each_verdict_on_the_cpu(data, waits, expected):
    name, sentence = verdict(look(cpu_step(0, data=data, waits=waits)), on_gpu=False)
    assert name == expected
    assert "issue work" not in sentence


def test_a_verdict_has_no_exponent():
    figures = replace(look(cpu_step(0)), step=2319.6)
    assert "of a step of 2320 ms" in verdict(figures, on_gpu=False)[1]


def test_a_captured_step_has_one_part_for_all_its_kernels():
    events = [
        event("ProfilerStep#1", "user_annotation", 0, 8),
        *parts(("data", 1), ("graph", 1)),
        event("cudaGraphLaunch", "cuda_runtime", 1.2, 0.1, thread=2, correlation=1),
        event("conv", "kernel", 1.5, 4, thread=7, correlation=1),
        event("ncclDevKernel_AllReduce_Sum", "kernel", 4.5, 2, thread=20, correlation=1),
    ]
    figures = look(events, 7.0, 0.5)
    assert (figures.graph, figures.forward, figures.communication) == pytest.approx((4, 0, 1))
    text = "\n".join(describe(figures, on_gpu=True, separate_backward=True))
    assert "the captured step" in text
    assert "forward   " not in text
    assert verdict(figures, on_gpu=True)[0] == "compute-bound"


def test_the_summary_says_all_of_it():
    figures = look([*gpu_step(0), *gpu_step(10)], 8.0, 0.25)
    record = as_record([figures, figures], on_gpu=True)
    assert record["share"]["backward"] == pytest.approx(3 / 8)
    assert sum(record["share"].values()) == pytest.approx(1)
    assert record["communication_hidden_by_backward"] == pytest.approx(0.5)
    assert len(record["ranks"]) == 2
    json.dumps(record)
    lines = describe(mean([figures, figures]), on_gpu=True, separate_backward=True)
    assert "  backward           3.00 ms   38%" in lines
    assert any(
        "3.00 ms in all, 50% hidden behind computing, 50% behind the backward pass" in line for line in lines
    )
    row = columns(figures, steps_per_epoch=100, on_gpu=True)
    assert row["bw_time_s"] == pytest.approx(0.3)
    assert row["comm_time_s"] == pytest.approx(0.15)
    assert row["util_gpu"] == pytest.approx(7.5 / 8)
    assert "util_gpu" not in columns(figures, steps_per_epoch=100, on_gpu=False)


def test_a_plain_backward_is_not_told_from_the_forward_pass():
    events = [event("ProfilerStep#1", "user_annotation", 0, 4), *parts(("forward", 4))]
    trace = make_trace(events)
    assert not trace.has_backward
    lines = describe(account(trace, None, None, {}), on_gpu=False, separate_backward=False)
    assert any("backward too: train_step() calls loss.backward()" in line for line in lines)


def test_a_trace_without_steps_is_refused(tmp_path):
    path = tmp_path / "empty.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": []}).encode()))
    with pytest.raises(ValueError, match="no step"):
        read_trace(path)


# ---- the option


def test_profiling_a_measurement_is_refused():
    with pytest.raises(UsageError, match="--profile slows the steps that --measure-steps times: leave out one"):
        options.resolve(options.parse(["--profile", "--measure-steps", "10"]), 1)


@pytest.mark.parametrize(
    ("argv", "warning"),
    [
        (["--nvtx"], "--nvtx has no effect without a GPU"),
        (["--profile", "--dry-run"], "--profile has no effect in a dry run"),
    ],
)
def test_looking_inside_without_effect_is_named(argv, warning):
    assert options.resolve(options.parse(argv), 1)[1] == [warning]


@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp", "fsdp1"])
def test_a_profiled_run_says_where_its_time_went(tiny, tmp_path, strategy):
    ranks = 1 if strategy == "none" else 2
    argv = ("--strategy", strategy, "--epochs", "2", "--accumulate", "2", "--profile")
    result = tiny(*argv, world_size=ranks, images=320)
    assert result.values[0]["ended"] == "done"
    folder = tmp_path / "results" / "r"
    profile = folder / "profile"
    summary = json.loads((profile / "summary.json").read_text())
    assert summary["traced_steps"] == [27, 31]
    assert summary["timed_steps"] == [16, 25]
    assert len(summary["ranks"]) == ranks
    assert sum(summary["share"].values()) == pytest.approx(1, abs=1e-6)
    assert all(summary["share"][part] > 0 for part in ("data", "forward", "backward", "optimizer"))
    assert (summary["milliseconds"]["all_communication"] > 0) == (ranks > 1)
    assert summary["verdict"] in ("compute-bound", "communication-bound", "data-bound")
    for rank in range(ranks):
        trace = read_trace(profile / f"rank{rank}.pt.trace.json.gz")
        assert trace.steps == 5
        assert len(trace.parts["backward"]) == 10  # two micro-batches a step

    log = (folder / "train.log").read_text()
    assert (profile / "summary.txt").read_text() in log
    assert f"verdict  {summary['sentence']}" in log
    rows = list(csv.DictReader((folder / "run.csv").read_text().splitlines()))
    columns_filled = [bool(row["fw_time_s"]) for row in rows]
    assert columns_filled == [True, False, True]  # the profiled epoch, the other, the summary
    assert float(rows[0]["bw_time_s"]) == pytest.approx(summary["milliseconds"]["backward"] * 40 / 1000, rel=1e-4)
    assert rows[0]["util_gpu"] == ""


def test_a_profile_changes_no_result(tiny):
    plain, profiled = (
        tiny("--strategy", "ddp", "--epochs", "1", "--run-id", name, *more, images=96).values[0]
        for name, more in (("plain", ()), ("profiled", ("--profile",)))
    )
    assert plain["records"] == profiled["records"]


def test_a_run_that_ends_too_early_says_so(tiny, tmp_path):
    tiny("--strategy", "ddp", "--epochs", "1", "--profile", stop=[1, 3], images=320)
    assert "warning: no profile: the run ended before" in (tmp_path / "results" / "r" / "train.log").read_text()


def test_a_profile_that_cannot_be_written_is_a_warning(tiny, tmp_path):
    folder = tmp_path / "results" / "r"
    folder.mkdir(parents=True)
    (folder / "profile").write_text("a file, not a folder")
    result = tiny("--strategy", "ddp", "--epochs", "1", "--profile", images=32)
    assert result.values[0]["ended"] == "done"
    assert "warning: no profile: rank 0: " in (folder / "train.log").read_text()
