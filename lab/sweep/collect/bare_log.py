"""Read a run's log where there is no run folder, such as slurm-12.out, into a row of results.csv.

A log can have been cut off, mixed with that of another job, or be something else altogether. So it gives figures
only if it holds one run's start report, and complete [METRIC] lines of all its epochs in order, and nothing that
looks like half of one.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from lab.runs.records.folder import SUMMARY
from lab.slurm import reasons, states
from lab.sweep.collect.record_files import NotUsable
from lab.sweep.collect.run_folder import median, write_number
from lab.sweep.compare.columns import RESULT_COLUMNS, device_count

LONGEST_LINE = 1 << 16  # bytes; what is longer is no line of a run
FROM_A_LOG = "known from its log only"  # stands as the variant: what else was configured cannot be told

_NUMBER = r"(nan|inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_METRIC = re.compile(
    rf"\[METRIC\] epoch=(\d+) time={_NUMBER} train_loss={_NUMBER} val_loss={_NUMBER} acc={_NUMBER} "
    rf"images_per_sec={_NUMBER} peak_mem=(\d+)MB"
)
_TEST = re.compile(rf"\[METRIC\] test_loss={_NUMBER} test_acc={_NUMBER}")
_START = re.compile(r"(none|ddp|fsdp1?): ([\w.:]+) \([\d,]+ parameters\) on ([\w.:]+), (fp32|bf16|fp16)")
_REPORT = {
    "ranks": re.compile(r"  ranks      (\d+) on (\d+) nodes? \(.*\), backend \w+, device (.+)"),
    "batch": re.compile(
        r"  batch      (\d+) in all, (\d+) on each rank.*; (\d+) steps an epoch, -?\d+ samples dropped"
    ),
    "epochs": re.compile(r"  length     (\d+) epochs?"),
    "steps": re.compile(r"  length     (\d+) measured steps, after \d+ that are discarded"),
}
_ON_DEVICE = "  input      all training images are on the device already"
_RESUMED = "  resumed    from "


class _Log:
    """What one log says, line by line."""

    def __init__(self) -> None:
        self.start: tuple[str, ...] = ()
        self.report: dict[str, tuple[str, ...]] = {}
        self.on_device = self.begun_again = False
        self.metrics: list[tuple[str, ...]] = []

    def read(self, line: str) -> None:
        """One line without its end. Raises NotUsable for a line that no single run writes."""
        if found := _START.fullmatch(line):
            if self.start and found.groups() != self.start:
                raise NotUsable("two different runs wrote into this log")
            self.begun_again = bool(self.start)  # fine if it says next that it is resumed
            self.start = found.groups()
        elif line.startswith(_RESUMED):
            self.begun_again = False
        elif line == _ON_DEVICE:
            self.on_device = True
        elif "[METRIC]" in line:
            self._read_metric(line)
        else:
            for name, pattern in _REPORT.items():
                if found := pattern.fullmatch(line):
                    if name in self.report and found.groups() != self.report[name]:
                        raise NotUsable("two different runs wrote into this log")
                    self.report[name] = found.groups()

    def _read_metric(self, line: str) -> None:
        if _TEST.fullmatch(line):
            return
        found = _METRIC.fullmatch(line)
        if not found:
            raise NotUsable(f"a garbled line: {line}")
        if self.begun_again:
            raise NotUsable("two runs wrote into this log, one after the other")
        if int(found[1]) != len(self.metrics) + 1:
            raise NotUsable(f"the epochs do not count 1, 2, 3, ...: epoch {found[1]} follows {len(self.metrics)}")
        self.metrics.append(found.groups())


def read_log(path: Path) -> dict[str, str]:
    """The row of results.csv for a bare log. Never raises for what is in it, and never holds all of it."""
    row = dict.fromkeys(RESULT_COLUMNS, "") | {"run_id": path.name, "epoch": SUMMARY}
    log = _Log()
    try:
        for line in _lines(path):
            log.read(line)
        figures = _figures(log)
        row |= _identity(log)
        if not figures:
            end = reasons.tail(path)
            state, why = reasons.slurm_end(end)
            if not state and (why := reasons.from_log(end)):
                state = states.of_failure(why)
            return row | {"status": state or states.RUNNING, "reason": why or _progress(log)}
    except NotUsable as error:
        return row | {"status": states.FAILED, "reason": reasons.one_line(str(error))}
    except OSError as error:
        return row | {"status": states.FAILED, "reason": f"{path}: {error.strerror}"}
    return row | figures | {"status": states.DONE}


def what_tells_it_apart(path: Path) -> str:
    """What no log of another run holds too: times of several epochs; of a shorter run all lines. Else empty."""
    try:
        lines = list(_lines(path))
    except (NotUsable, OSError):
        return ""
    metrics = [line for line in lines if _METRIC.fullmatch(line)]
    return "\n".join(metrics if len(metrics) > 1 else lines)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        empty = True
        while line := file.readline(LONGEST_LINE):
            empty = False
            if b"\0" in line:
                raise NotUsable("this is not text")
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                if b"[METRIC]" in line:
                    raise NotUsable("a garbled line of more than 64 KiB")
                continue
            if not line.endswith(b"\n") and b"[METRIC]" in line:
                return  # still being written, or cut off
            yield line.decode("utf-8", errors="replace").rstrip("\r\n")
        if empty:
            raise NotUsable("the log is empty")


def _identity(log: _Log) -> dict[str, str]:
    if not log.start:
        raise NotUsable("this log has no start report of a run")
    row = dict(zip(("strategy", "model", "dataset", "precision"), log.start, strict=True))
    row |= {"variant": FROM_A_LOG, "input": "device" if log.on_device else "loader", "repeat": "1"}
    if ranks := log.report.get("ranks"):
        row |= {"world_size": ranks[0] if device_count(ranks[0]) else "", "nodes": ranks[1], "device": ranks[2]}
    if batch := log.report.get("batch"):
        row |= dict(zip(("global_batch", "per_gpu_batch", "steps_per_epoch"), batch, strict=True))
    if "steps" in log.report:
        row |= {"epochs": "1", "variant": f"{FROM_A_LOG}, {log.report['steps'][0]} measured steps"}
    elif epochs := log.report.get("epochs"):
        row["epochs"] = epochs[0]
    return row


def _figures(log: _Log) -> dict[str, str]:
    """The measured columns of a run that trained to its end; {} of one that has not."""
    measures = "steps" in log.report
    wanted = 1 if measures else int(log.report["epochs"][0]) if "epochs" in log.report else 0
    if not log.start or not {"ranks", "batch"} <= log.report.keys() or not wanted or len(log.metrics) != wanted:
        return {}
    if not device_count(log.report["ranks"][0]):
        raise NotUsable(f"world_size is {log.report['ranks'][0]!r}, not a number of devices")
    _, *columns, memory = zip(*log.metrics, strict=True)
    times, train_losses, losses, accuracies, speeds = ([float(value) for value in column] for column in columns)
    settled = slice(1, None) if len(times) > 1 else slice(None)
    seconds, a_pass = median(times[settled]), int(log.report["batch"][2])
    steps = log.report["steps"][0] if measures else str(len(times[settled]) * a_pass)
    return {
        "time_epoch_s": write_number(seconds),
        "images_per_sec": write_number(median(speeds[settled])),
        "step_time_s": write_number(seconds / a_pass) if a_pass else "",
        "measured_steps": steps,
        "train_loss": write_number(train_losses[-1]),
        "val_loss": write_number(losses[-1]),
        "val_top1": write_number(accuracies[-1]),
        "mem_gb": write_number(max(map(int, memory)) / 1024),
    }


def _progress(log: _Log) -> str:
    if not log.start:
        return ""
    if "epochs" not in log.report and "steps" not in log.report:
        return f"the log does not say how many epochs there will be; it has {len(log.metrics)}"
    return f"the log has {len(log.metrics)} of {log.report.get('epochs', ('1',))[0]} epochs"
