"""results.csv as one typed table of pandas, a row a run: what every comparison, table and figure begins with."""

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from lab.base.errors import UserError
from lab.runs.options.precision import DEFAULT_BUCKET_CAP_MB
from lab.runs.records.folder import CORE_COLUMNS
from lab.slurm import states
from lab.sweep.compare.columns import BASELINE, COUNTS, DTYPES, FIGURES, RESULT_COLUMNS, SETTING, device_count

Setting = tuple[str, ...]
BETWEEN = " | "  # the parts of a setting


def load(path: Path) -> pd.DataFrame:
    """The runs of a results.csv, as `typed` has them.

    Raises:
        UserError: it is missing, empty, or not what collect_results.py writes.
    """
    again = "write it with collect_results.py"
    try:
        with path.open(newline="", encoding="utf-8") as file:  # read_csv fills up a line that was cut off
            header, *lines = list(csv.reader(file, strict=True)) or [[]]
    except FileNotFoundError:
        raise UserError(f"there is no {path}: {again}") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{path} is not a CSV file: {again}") from None
    if not header or not lines:
        raise UserError(f"{path} is empty: {again}")
    if not {*CORE_COLUMNS, "train_loss", "val_loss", "device"} <= set(header):
        raise UserError(f"{path} lacks columns of a results.csv: {again}")
    rows = [dict(zip(header, line, strict=False)) for line in lines]
    for number, (line, row) in enumerate(zip(lines, rows, strict=True), start=2):
        if len(line) != len(header) or (row["status"] == states.DONE and not device_count(row["world_size"])):
            raise UserError(f"line {number} of {path} is damaged: {again}")
    return typed(rows).reset_index(drop=True)


def typed(rows: Iterable[Mapping[str, str]] | pd.DataFrame) -> pd.DataFrame:
    """Rows of text as a table, setting by setting, each by number of devices with the baseline first.

    The columns of results.csv have the types of DTYPES; those that an earlier version did not write are empty.
    Five more follow from them:

    batch       what stays the same along a curve: the global batch, or with weak scaling that of each device
    setting     what runs must have in common to be compared (see SETTING)
    label       the strategy, with its buckets where they are not the usual ones
    seconds     T: the time of a pass over the data; with weak scaling of a step, whose work grows with the devices
    efficiency  a fraction, of the kind of scaling that the run has; NaN without a baseline

    The index is a row's place in what was given. A table that is typed already is returned as it is.
    """
    if isinstance(rows, pd.DataFrame):
        return rows
    text = pd.DataFrame(list(rows), dtype="str").fillna("")
    columns = dict.fromkeys([*RESULT_COLUMNS, *text.columns])
    text = text.reindex(columns=list(columns), fill_value="").astype("str")
    runs = text.copy()
    for name in COUNTS:
        whole = text[name].where(text[name].str.fullmatch(r"[0-9]{1,15}"))
        runs[name] = pd.to_numeric(whole).astype(DTYPES[name])
    for name in FIGURES:
        runs[name] = text[name].map(_number).astype(DTYPES[name])
    runs["world_size"] = runs["world_size"].where(runs["world_size"] > 0)

    weak = runs["scaling"] == "weak"
    batches = ("batch " + text["per_gpu_batch"] + " per device").where(
        weak, "global batch " + text["global_batch"]
    )
    known = text["per_gpu_batch"].where(weak, text["global_batch"]) != ""
    runs["batch"] = text["batch"] = batches.where(known, "")
    settings = _homes(list(zip(*(text[name] for name in SETTING), strict=True)), runs["status"] == states.DONE)
    runs["setting"] = pd.Series(
        [BETWEEN.join(part.replace("|", "/") for part in one) for one in settings], runs.index, dtype="str"
    )
    usual = runs["bucket_cap_mb"].isna() | (runs["bucket_cap_mb"] == DEFAULT_BUCKET_CAP_MB)
    buckets = runs["bucket_cap_mb"].map(lambda cap: f" {cap:g} MiB").astype("str")
    runs["label"] = runs["strategy"] + buckets.mask(usual, "")
    runs["seconds"] = runs["step_time_s"].where(weak, runs["time_epoch_s"])
    runs["efficiency"] = runs["eff_weak"].where(weak, runs["eff_strong"])

    place = {setting: place for place, setting in enumerate(sorted(set(settings)))}
    order = pd.DataFrame(
        {
            "setting": [place[setting] for setting in settings],
            "devices": runs["world_size"].fillna(0),
            "wrapped": runs["strategy"] != BASELINE,
            "strategy": runs["strategy"],
            "buckets": runs["bucket_cap_mb"].fillna(0),
            "repeat": runs["repeat"].fillna(0),
            "run_id": runs["run_id"],
        },
        runs.index,
    )
    return runs.loc[order.sort_values(list(order), kind="stable").index]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _homes(settings: list[Setting], done: Iterable[bool]) -> list[Setting]:
    """The setting that each run stands with.

    A job that died early may not have said, for example, on which device it ran. It stands with the finished
    runs that agree with all it did say, if these are of a single setting.
    """
    finished = dict.fromkeys(setting for setting, ended in zip(settings, done, strict=True) if ended)
    homes = {}
    for own in dict.fromkeys(settings):
        agreeing = [
            key for key in finished if all(mine in ("", theirs) for mine, theirs in zip(own, key, strict=True))
        ]
        homes[own] = agreeing[0] if own not in finished and len(agreeing) == 1 else own
    return [homes[own] for own in settings]
