"""Read one run folder into one row of results.csv, whatever is in it.

The rule: a row has figures only if every record of its run is complete, is this run's own, and says that the
run is done. Anything else is a row with a status, a reason and what is known of the job, and no figures.
"""

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from lab.sweep import reasons
from lab.sweep.job_folder import JOB_FILE, LARGEST, read_json
from lab.training.records import CORE_COLUMNS, RUN_COLUMNS, SUMMARY

RESULT_COLUMNS = (*RUN_COLUMNS, "train_loss", "val_loss")
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
_PROFILED = ("dl_time_s", "fw_time_s", "bw_time_s", "comm_time_s")


class NotUsable(Exception):
    """A record is missing, damaged or another run's; the text is the row's reason."""


def is_run_folder(folder: Path) -> bool:
    """Whether it holds any of a run's records, or nothing at all (a run that died at once)."""
    names = {entry.name for entry in folder.iterdir()}
    return not names or any(name in names for name in RECORDS)


def read_run(folder: Path) -> dict[str, str]:
    """The row of results.csv for this folder. Never raises for what is in it."""
    row = dict.fromkeys(RESULT_COLUMNS, "") | _known_of_the_job(folder) | {"run_id": folder.name}
    try:
        status, reason = _status(folder)
        figures = _figures(folder) if status == "done" else {}
    except NotUsable as error:
        status, reason, figures = "failed", str(error), {}
    except OSError as error:
        status, reason, figures = "failed", f"{error.filename or folder}: {error.strerror}", {}
    return row | figures | {"status": status, "reason": reasons.one_line(reason), "epoch": SUMMARY}


def _known_of_the_job(folder: Path) -> dict[str, str]:
    """What was to be run: from config.json, else from job.json, as far as they can be read."""
    job, config = read_json(folder / JOB_FILE), read_json(folder / "config.json")
    known = {"jobid": _text(job.get("jobid"))}
    for column, name in {**_IN_CONFIG, "scaling": "scaling", "repeat": "repeat", "device": "device"}.items():
        known[column] = _text(config.get(name)) or _text(job.get(column))
    return {**known, "world_size": known["world_size"] if device_count(known["world_size"]) else ""}


def device_count(text: str) -> int:
    """A world size as a number; 0 for anything that is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 7 else 0


def _text(value: object) -> str:
    usable = isinstance(value, str | int | float) and not isinstance(value, bool)
    return reasons.one_line(str(value)) if usable else ""


def _status(folder: Path) -> tuple[str, str]:
    """Status and reason: done, failed, interrupted (told to stop; it can be resumed), running, or pending.

    A pending job is submitted, but has written nothing.
    """
    if not any(folder.iterdir()):
        raise NotUsable("the folder is empty")
    job = read_json(folder / JOB_FILE)
    jobid = _text(job.get("jobid"))
    if (folder / "status.json").exists():
        record = _json_object(folder / "status.json")
        status, reason = record.get("status"), record.get("reason")
    else:
        status, reason = ("pending", "") if jobid else (None, None)
    if status in ("running", "pending"):
        ended = reasons.slurm_end(reasons.tail(folder / "train.err")) if jobid else ""
        if ended:
            return "failed", ended
        if status == "pending":
            return status, f"job {jobid} has written nothing yet; see squeue --me"
        return status, "has not ended" + (f"; see squeue --jobs={jobid}" if jobid else "")
    if status in ("failed", "interrupted"):
        said = reason if isinstance(reason, str) else ""
        return status, said or reasons.from_log(reasons.tail(folder / "train.err")) or "no reason on record"
    if status != "done":
        if status is None and not (folder / "status.json").exists():
            raise NotUsable("status.json is missing: the run ended before it began to write")
        raise NotUsable(f"status.json says {status!r} instead of done, failed, interrupted or running")
    return status, ""


def _figures(folder: Path) -> dict[str, str]:
    """The measured columns of a run that is done, and the columns that identify it.

    Time and images/s are the median over the epochs after the first, which pays for starting up; accuracy and
    losses are those of the last epoch; memory is the largest of any epoch.
    """
    rows = _csv_rows(folder / "run.csv", CORE_COLUMNS)
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

    config = _json_object(folder / "config.json")
    for column, name in _IN_CONFIG.items():
        if summary[column] != _text(config.get(name)):
            raise NotUsable(
                f"run.csv says {column} {summary[column]!r}, config.json says {_text(config.get(name))!r}"
            )
    if not device_count(summary["world_size"]):
        raise NotUsable(f"world_size is {summary['world_size']!r}, not a number of devices")

    series = {name: [_number(row, name) for row in epochs] for name in _MEASURED}
    settled = slice(1, None) if len(epochs) > 1 else slice(None)
    figures = {column: summary[column] for column in (*_IN_CONFIG, *_FROM_SUMMARY, *_PROFILED)}
    figures |= {name: _write(_median(series[name][settled])) for name in ("time_epoch_s", "images_per_sec")}
    figures |= {name: _write(series[name][-1]) for name in ("train_top1", "val_top1")}
    figures["mem_gb"] = _write(max(series["mem_gb"]))
    figures |= _losses(folder, last_epoch=str(len(epochs)))
    return figures


def _losses(folder: Path, last_epoch: str) -> dict[str, str]:
    rows = _csv_rows(folder / "metrics.csv", ("epoch", "phase", "loss"))
    losses = {row["phase"]: _number(row, "loss") for row in rows if row["epoch"] == last_epoch}
    if not {"train", "val"} <= losses.keys():
        raise NotUsable(f"metrics.csv has no train and val rows of epoch {last_epoch}: it was cut off")
    return {f"{phase}_loss": _write(losses[phase]) for phase in ("train", "val")}


def _read(path: Path) -> str:
    if not path.exists():
        raise NotUsable(f"{path.name} is missing")
    if not path.is_file():
        raise NotUsable(f"{path.name} is not a file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise NotUsable(f"{path.name} is larger than {LARGEST >> 20} MiB: not a record of a run")
    if not content.strip():
        raise NotUsable(f"{path.name} is empty")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise NotUsable(f"{path.name} is not text") from None


def _json_object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(_read(path))
    except (ValueError, RecursionError):
        raise NotUsable(f"{path.name} is not JSON: it was cut off or overwritten") from None
    if not isinstance(value, dict):
        raise NotUsable(f"{path.name} holds no JSON object")
    return value


def _csv_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of a CSV file that has at least these columns, each row with a value for every column."""
    try:
        header, *records = list(csv.reader(io.StringIO(_read(path)), strict=True))
    except csv.Error as error:
        raise NotUsable(f"{path.name} is not CSV: {error}") from None
    missing = [name for name in columns if name not in header]
    if missing or len(set(header)) != len(header):
        raise NotUsable(f"the first line of {path.name} is not the names of its columns")
    for number, record in enumerate(records, start=2):
        if len(record) != len(header):
            raise NotUsable(f"line {number} of {path.name} has {len(record)} fields instead of {len(header)}")
    return [dict(zip(header, record, strict=True)) for record in records]


def _number(row: Mapping[str, str], column: str) -> float:
    """A value of a row; nan is a value too, and stays visible."""
    try:
        return float(row[column])
    except ValueError:
        raise NotUsable(f"{column} is {row[column]!r} in epoch {row['epoch']}, which is not a number") from None


def _median(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else statistics.median(values)


def _write(value: float) -> str:
    return f"{value:.6g}"
