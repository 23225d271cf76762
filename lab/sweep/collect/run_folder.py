"""Read one run folder into one row of results.csv, whatever is in it.

The rule: a row has figures only if every record of its run is complete, is this run's own, and says that the
run is done. Anything else is a row with a status, a reason and what is known of the job, and no figures.
"""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from lab.runs.records.folder import BEST_COLUMNS, CORE_COLUMNS, HOW_COLUMNS, SHARD_COLUMNS, SUMMARY
from lab.runs.records.job import JOB_FILE, read_json
from lab.slurm import reasons, states
from lab.slurm.query import SlurmJob
from lab.sweep.collect.record_files import NotUsable, csv_rows, json_object, text_of
from lab.sweep.collect.run_status import slurm_job, status_of
from lab.sweep.compare.columns import RESULT_COLUMNS, device_count

RECORDS = ("config.json", "status.json", "run.csv", "metrics.csv", "train.log", "train.err", JOB_FILE)

# Column of results.csv -> name in config.json. Where run.csv has the column too, the two must agree.
_IN_CONFIG = {
    **{name: name for name in ("strategy", "model", "dataset", "precision", "world_size", "epochs")},
    "global_batch": "global_batch_size",
    "per_gpu_batch": "per_device_batch_size",
    "nodes": "nodes",
}
_MEASURED = ("train_top1", "val_top1", "images_per_sec", "time_epoch_s", "mem_gb")
_FROM_SUMMARY = ("scaling", "repeat", "jobid", "commit", "ts", "gpus_per_node", "util_gpu")
_OF_THE_CONFIGURATION = ("scaling", "repeat", "input", "bucket_cap_mb", "variant", "device", "config_hash")
_OF_THE_SYSTEM = ("driver", "versions", *HOW_COLUMNS)
_AS_RECORDED = (*_OF_THE_CONFIGURATION, *_OF_THE_SYSTEM, *BEST_COLUMNS, *SHARD_COLUMNS)
_PROFILED = ("dl_time_s", "fw_time_s", "bw_time_s", "comm_time_s")


def is_run_folder(folder: Path) -> bool:
    """Whether it holds any of a run's records, or nothing at all (a run that died at once)."""
    names = {entry.name for entry in folder.iterdir()}
    return not names or any(name in names for name in RECORDS)


def read_run(folder: Path, in_slurm: Mapping[str, SlurmJob] | None = None) -> dict[str, str]:
    """The row of results.csv for this folder. Never raises for what is in it.

    Args:
        in_slurm: what Slurm says of jobs, by job id.
    """
    row = dict.fromkeys(RESULT_COLUMNS, "") | _known_of_the_job(folder) | {"run_id": folder.name}
    try:
        status, reason = status_of(folder, row["jobid"], (in_slurm or {}).get(row["jobid"]))
        figures = _figures(folder) if status == states.DONE else {}
    except NotUsable as error:
        status, reason, figures = states.FAILED, str(error), {}
    except OSError as error:
        status, reason, figures = states.FAILED, f"{error.filename or folder}: {error.strerror}", {}
    return row | figures | {"status": status, "reason": reasons.one_line(reason), "epoch": SUMMARY}


def _known_of_the_job(folder: Path) -> dict[str, str]:
    """What was to be run: from config.json, else from job.json, as far as they can be read."""
    job, config = read_json(folder / JOB_FILE), read_json(folder / "config.json")
    known = {"jobid": slurm_job(folder), "compare": text_of(job.get("compare"))}
    for column, name in {
        **_IN_CONFIG,
        **{name: name for name in (*_OF_THE_CONFIGURATION, *_OF_THE_SYSTEM)},
    }.items():
        known[column] = text_of(config.get(name)) or text_of(job.get(column))
    known["bucket_cap_mb"] = _buckets(known["strategy"], known["bucket_cap_mb"])
    return {**known, "world_size": known["world_size"] if device_count(known["world_size"]) else ""}


def _buckets(strategy: str, cap: str) -> str:
    """config.json has a number for every strategy, as 25.0; only ddp has buckets."""
    try:
        return f"{float(cap):g}" if strategy == "ddp" else ""
    except ValueError:
        return ""


def _figures(folder: Path) -> dict[str, str]:
    """The measured columns of a run that is done, and the columns that identify it.

    Of a measurement (--measure-steps) time and images/s are those of its window of steps. Of a run in epochs they
    are the median over the epochs after the first, which pays for starting up. Accuracy and losses are those of
    the last epoch; memory is the largest of any epoch.
    """
    rows = csv_rows(folder / "run.csv", CORE_COLUMNS)
    if not rows or rows[-1]["epoch"] != SUMMARY:
        raise NotUsable("run.csv has no summary row: it was cut off")
    *epochs, summary = rows
    if any(row["run_id"] != folder.name for row in rows):
        raise NotUsable(f"run.csv is of run {rows[0]['run_id']!r}, not of this folder's")
    if summary["status"] != "done":
        raise NotUsable(f"status.json says done, run.csv says {summary['status']!r}")
    if [row["epoch"] for row in epochs] != [str(n) for n in range(1, len(epochs) + 1)] or not epochs:
        raise NotUsable("the epochs in run.csv do not count 1, 2, 3, ...")
    if str(len(epochs)) != summary["epochs"]:
        raise NotUsable(f"run.csv holds {len(epochs)} of {summary['epochs']} epochs")

    config = json_object(folder / "config.json")
    for column, name in _IN_CONFIG.items():
        if summary[column] != text_of(config.get(name)):
            raise NotUsable(
                f"run.csv says {column} {summary[column]!r}, config.json says {text_of(config.get(name))!r}"
            )
    if not device_count(summary["world_size"]):
        raise NotUsable(f"world_size is {summary['world_size']!r}, not a number of devices")

    series = {name: [_number(row, name) for row in epochs] for name in _MEASURED}
    settled = slice(1, None) if len(epochs) > 1 else slice(None)
    figures = {column: summary[column] for column in (*_IN_CONFIG, *_FROM_SUMMARY, *_PROFILED)}
    figures |= {
        column: summary[column] for column in (*_AS_RECORDED, "grad_norm", "loss_scale") if summary.get(column)
    }
    figures |= {
        column: write_number(median([_number(row, column) for row in epochs[settled]]))
        for column in ("tflops_per_device", "mfu")
        if all(row.get(column) for row in epochs[settled])  # earlier versions, and cards of which nobody knows
    }
    figures |= _steps(summary, config, len(epochs[settled]), median(series["time_epoch_s"][settled]))
    figures |= {name: write_number(median(series[name][settled])) for name in ("time_epoch_s", "images_per_sec")}
    figures |= {name: write_number(series[name][-1]) for name in ("train_top1", "val_top1")}
    figures["mem_gb"] = write_number(max(series["mem_gb"]))
    figures |= _losses(folder, last_epoch=str(len(epochs)))
    return figures


def _steps(
    summary: Mapping[str, str], config: Mapping[str, object], settled_epochs: int, seconds: float
) -> dict[str, str]:
    """The columns about steps; runs of an earlier version have only what config.json says."""
    a_pass = text_of(config.get("steps_per_epoch"))
    if config.get("measure_steps"):
        return {name: summary.get(name, "") for name in ("step_time_s", "measured_steps", "steps_per_epoch")}
    if not device_count(a_pass):
        return {}
    return {
        "step_time_s": write_number(seconds / int(a_pass)),
        "measured_steps": str(settled_epochs * int(a_pass)),
        "steps_per_epoch": a_pass,
    }


def _losses(folder: Path, last_epoch: str) -> dict[str, str]:
    rows = csv_rows(folder / "metrics.csv", ("epoch", "phase", "loss"))
    losses = {row["phase"]: _number(row, "loss") for row in rows if row["epoch"] == last_epoch}
    if not {"train", "val"} <= losses.keys():
        raise NotUsable(f"metrics.csv has no train and val rows of epoch {last_epoch}: it was cut off")
    return {f"{phase}_loss": write_number(losses[phase]) for phase in ("train", "val")}


def _number(row: Mapping[str, str], column: str) -> float:
    """A value of a row; nan is a value too, and stays visible."""
    try:
        return float(row[column])
    except ValueError:
        raise NotUsable(f"{column} is {row[column]!r} in epoch {row['epoch']}, which is not a number") from None


def median(values: list[float]) -> float:
    """nan where one of the values is: it must stay visible."""
    return math.nan if any(map(math.isnan, values)) else statistics.median(values)


def write_number(value: float) -> str:
    """With six significant digits."""
    return f"{value:.6g}"
