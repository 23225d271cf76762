"""What follows from runs that may be compared: baselines, efficiencies, the median and spread of repeats."""

import pandas as pd

from lab.slurm import states
from lab.sweep.compare.columns import BASELINE, FIGURES

POINT = ("setting", "label", "strategy", "world_size", "bucket_cap_mb")  # finished runs that agree are repeats
SPREAD = (*(name for name in FIGURES if name not in POINT), "seconds", "efficiency")


def finished(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["status"] == states.DONE]


def baselines(runs: pd.DataFrame) -> pd.DataFrame:
    """The finished plain runs on one device."""
    return runs[
        (runs["status"] == states.DONE) & (runs["strategy"] == BASELINE) & (runs["world_size"] == 1).fillna(False)
    ]


def baseline_times(runs: pd.DataFrame) -> "pd.Series[float]":
    """T(1) of each setting in seconds: of the plain run on one device, the median where it was repeated."""
    alone = baselines(runs)
    return alone[alone["seconds"] > 0].groupby("setting")["seconds"].median()


def efficiencies(runs: pd.DataFrame) -> "pd.Series[float]":
    """A fraction, wherever the same work has a finished baseline on the same card; else NaN.

    Strong scaling: E_s(N) = T(1) / (N T(N)), T of a pass over the data at one global batch.
    Weak scaling: E_w(N) = T(1) / T(N), T of a step at one batch on each device.
    """
    one = runs["setting"].map(baseline_times(runs)).astype("float64")
    devices = runs["world_size"].astype("float64").mask(runs["scaling"] == "weak", 1)
    known = (runs["status"] == states.DONE) & (runs["seconds"] > 0)
    return (one / (devices * runs["seconds"])).where(known)


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a point: the finished runs of one strategy on one number of devices in one setting.

    Beside the columns of POINT: `runs`, how many repeats; `run_id` of the first; and for each figure its median
    (`seconds`), the least and the largest (`seconds_least`, `seconds_largest`), NaN where one of the repeats is.
    """
    groups = finished(runs).groupby(list(POINT), sort=False, dropna=False)
    table = pd.concat([spread(groups, SPREAD), groups["run_id"].first(), groups.size().rename("runs")], axis=1)
    return table.reset_index()


def spread(groups: "pd.api.typing.DataFrameGroupBy", figures: tuple[str, ...]) -> pd.DataFrame:
    """The median of these columns by their names; the least and the largest as NAME_least and NAME_largest."""
    values = groups[list(figures)]
    least, largest = values.min(skipna=False).add_suffix("_least"), values.max(skipna=False).add_suffix("_largest")
    return pd.concat([values.median(skipna=False), least, largest], axis=1)
