"""How busy the GPUs were: what nvidia-smi sampled beside a job on Slurm (slurm/system_records.sh writes it)."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.base.errors import UserError
from lab.sweep.compare.points import points
from lab.sweep.draw.axes import beside_point, device_axis, legend, new_figure
from lab.sweep.draw.style import LOOKS, marked

FIELDS = ("utilization.gpu", "power.draw")  # in per cent of the time with a kernel at work; in watts


def samples(run_folder: Path) -> pd.DataFrame:
    """One row a sample: `gpu` (node and number), `seconds` since the first, and FIELDS; no row without samples.

    What nvidia-smi does not know (`[N/A]`) is NaN, and so is what a line lacks that was cut off. A job that was
    started again goes on in the same file, below a second header.

    Raises:
        UserError: a file that has no such columns.
    """
    parts = []
    for file in sorted(run_folder.glob("slurm-*/gpus-*.csv")):
        try:
            raw = pd.read_csv(
                file, skipinitialspace=True, dtype="str", on_bad_lines="skip", encoding_errors="replace"
            )
        except pd.errors.EmptyDataError:  # the job ended before the first sample
            continue
        raw.columns = [name.split(" [")[0] for name in raw.columns]
        if missing := [name for name in ("timestamp", "index", *FIELDS) if name not in raw]:
            raise UserError(
                f"{file} has no column {missing[0]}: remove the file, or let nvidia-smi write it again"
            )
        when = pd.to_datetime(raw["timestamp"], format="%Y/%m/%d %H:%M:%S.%f", errors="coerce")
        figures = {name: pd.to_numeric(raw[name], errors="coerce") for name in FIELDS}
        gpu = file.stem.removeprefix("gpus-") + ":" + raw["index"]
        parts.append(pd.DataFrame({"gpu": gpu, "when": when, **figures}).dropna(subset=["when", "gpu"]))
    if not parts:
        return pd.DataFrame({"gpu": [], "seconds": [], **{name: [] for name in FIELDS}})
    found = pd.concat(parts, ignore_index=True)
    return found.assign(seconds=(found["when"] - found["when"].min()).dt.total_seconds()).drop(columns="when")


def working(found: pd.DataFrame) -> pd.DataFrame:
    """From the first to the last sample in which a GPU was busy: without the start-up before, and the end."""
    busy = found["seconds"][found["utilization.gpu"] > 0]
    return found[found["seconds"].between(busy.min(), busy.max())]


def gpu_utilization(runs: pd.DataFrame, setting: str, results: Path) -> Figure | None:
    """Left the GPUs' utilisation over the time of the largest runs, right the mean of each point and its power.

    Args:
        results: the folder with the runs' folders.
    """
    told = points(runs).sort_values(["strategy", "world_size"])
    told = told[told["strategy"].isin(list(LOOKS))].set_index("run_id")[["strategy", "world_size"]]
    found = {run_id: samples(results / run_id) for run_id in told.index}
    told = told[[one["utilization.gpu"].max() > 0 for one in found.values()]]
    if told.empty:
        return None
    subtitle = f"{setting}\nsampled by nvidia-smi: the share of the time in which a kernel was at work, not how"
    figure, (left, right) = new_figure(2, "How busy the GPUs were", f"{subtitle} well it used the GPU")
    for strategy, mine in told.groupby("strategy"):
        look = LOOKS[strategy]
        _over_time(left, strategy, int(mine["world_size"].iloc[-1]), found[mine.index[-1]])
        means = pd.DataFrame([working(found[run_id])[list(FIELDS)].mean() for run_id in mine.index])
        counts = mine["world_size"].astype(int)
        right.plot(counts, means["utilization.gpu"], **marked(look))
        for devices, (busy, power) in zip(counts, means.to_numpy(), strict=True):
            if pd.notna(power):
                beside_point(right, f"{power:.0f} W", (devices, busy), -16, look.colour)
    left.set_xlabel("seconds since the first sample")
    left.set_ylabel("GPU utilisation (%)")
    right.set_ylabel("mean while work was done (%)")
    device_axis(right, runs)
    for axes in (left, right):
        axes.set_ylim(0, 108)
    legend(figure, left)
    return figure


def _over_time(axes: Axes, strategy: str, devices: int, found: pd.DataFrame) -> None:
    """The mean over the GPUs; shaded, from the least busy to the busiest."""
    look = LOOKS[strategy]
    turns = found.groupby("gpu").cumcount()  # the GPUs of a node are sampled a moment apart
    by_turn = found.groupby(turns)
    at, busy = by_turn["seconds"].mean(), by_turn["utilization.gpu"]
    label = f"{look.label}, {devices} GPU{'s' * (devices > 1)}" if strategy != "none" else look.label
    axes.plot(at, busy.mean(), color=look.colour, linestyle="-" if look.line == "none" else look.line, label=label)
    axes.fill_between(at, busy.min(), busy.max(), color=look.colour, alpha=0.15, linewidth=0)
