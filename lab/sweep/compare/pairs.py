"""Before and after: which finished runs differ in one comparison and in nothing else. Imports no matplotlib."""

from collections.abc import Iterable

import pandas as pd

from lab.sweep.compare.columns import BASELINE
from lab.sweep.compare.points import finished, spread
from lab.sweep.compare.table import count_text

# What a comparison may set that results.csv has a column for; all other options are in `variant`.
COLUMN_OF = {
    "--precision": "precision",
    "--no-amp": "precision",
    "--input": "input",
    "--bucket-cap-mb": "bucket_cap_mb",
    "--model": "model",
    "--dataset": "dataset",
}
# What a step did: these columns, and the options of main.py that have no column.
STEP = [
    *("strategy", "world_size", "bucket_cap_mb", "model", "dataset", "precision", "batch", "scaling"),
    *("input", "device", "options"),
]
WORK = [*STEP, "measured"]  # and how long was measured
SIDES = ("before", "after")
MEASURING = "--measure-"  # so the options begin that say how long is measured
VARIED_ALONE = ("--num-workers",)  # of a sweep's axes: the figure of the sensitivity shows it


def options_of(variant: str) -> list[str]:
    """ "--capture --accumulate 2" -> ["--capture", "--accumulate 2"]."""
    return [f"--{word}".strip() for word in variant.split("--") if word.strip()] if variant else []


def pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """All of them, those of the baseline first: the options (`compared`), and two rows of works() side by side.

    What a sweep was told to compare is in the column `compare`. Of other runs those are paired whose options of
    main.py are those of another and some more, with the fewest more. The columns of works() end in _before and
    _after; so does `share`, of communication in a step, NaN where no run of the same was profiled.
    """
    found = pd.concat([_told(runs), _by_their_options(runs)]).drop_duplicates(["work_before", "work_after"])
    # A profile slows the steps: it tells of another pair's communication.
    profiled = found["profiled_before"] | found["profiled_after"]
    steps = found["step_work_before"] + found["step_work_after"]
    found = found[~(profiled & steps.isin(steps[~profiled]))]
    shares = _shares_of_communication(runs)
    found = found.assign(**{f"share_{side}": found[f"step_work_{side}"].map(shares) for side in SIDES})
    first = ("world_size", "strategy", "per_gpu_batch", "scaling")
    order = ["wrapped", *(f"{name}_before" for name in first), "compared", "work_before"]
    return found.assign(wrapped=found["strategy_before"] != BASELINE).sort_values(order, ignore_index=True)


def unpaired(runs: pd.DataFrame) -> list[str]:
    """A sentence for each point that was to be compared and has no finished run without, or with, the options."""
    paired = {run_id for run_ids in _told(runs)["run_ids_after"] for run_id in run_ids}
    said = []
    asked = ["compare", "strategy", "world_size", "per_gpu_batch", "scaling"]
    told = runs[runs["compare"] != ""]
    for (options, strategy, devices, each, scaling), members in told.groupby(asked, sort=False, dropna=False):
        if paired.intersection(members["run_id"]):
            continue
        with_it, without = works(members), works(runs[_are_without(runs, options)])
        if with_it["work"].isin(without["work"]).any():
            why = "the runs with it did the same work as those without: it changes nothing here"
        else:
            why = f"no run {'with' if with_it.empty else 'without'} it is done"
        point = f"{strategy} on {count_text(devices)}, {count_text(each)} each, {scaling}"
        said.append(f"no before and after of {options} ({point}): {why}")
    return said


def works(runs: pd.DataFrame) -> pd.DataFrame:
    """One row for all finished runs that did the same: WORK, `run_ids`, `profiled`, and the spread of `step`.

    step  seconds; from the images a second where no step was measured by itself
    """
    done = finished(runs).pipe(with_work)
    step = done["step_time_s"].where(done["step_time_s"] > 0, done["global_batch"] / done["images_per_sec"])
    groups = done.assign(step=step.astype("float64")).groupby(
        [*WORK, "step_work", "work"], sort=False, dropna=False
    )
    others = groups.agg(
        run_ids=("run_id", list),
        per_gpu_batch=("per_gpu_batch", "first"),
        profiled=("comm_time_s", lambda seconds: seconds.notna().any()),
    )
    return pd.concat([spread(groups, ("step",)), others], axis=1).reset_index().astype({"profiled": bool})


def with_work(runs: pd.DataFrame) -> pd.DataFrame:
    """With the columns `options` and `measured`, and as one text each all of STEP and all of WORK."""
    parts = runs["variant"].map(options_of)
    options = parts.map(lambda words: " ".join(sorted({one for one in words if not one.startswith(MEASURING)})))
    measuring = parts.map(lambda words: " ".join(one for one in words if one.startswith(MEASURING)))
    measured = runs["epochs"].map(count_text).astype("str") + " " + measuring.astype("str")
    runs = runs.assign(options=options.astype("str"), measured=measured)
    first, *others = (runs[name].astype("str").fillna("") for name in STEP)
    step_work = first.str.cat(others, sep=" | ")
    return runs.assign(step_work=step_work, work=step_work + " | " + runs["measured"])


def _told(runs: pd.DataFrame) -> pd.DataFrame:
    """What the sweep was told to compare."""
    nothing = works(runs).head(0)
    found = [_beside(nothing, nothing, WORK, "")]
    for options in dict.fromkeys(runs["compare"][runs["compare"] != ""]):
        names = _names(options)
        before, after = works(runs[_are_without(runs, options)]), works(runs[runs["compare"] == options])
        for side in (before, after):
            side["rest"] = side["options"].map(lambda text, names=names: _without(text, names)).astype("str")
        open_columns = {COLUMN_OF.get(name) for name in names} | {"options"}
        found.append(_beside(before, after, [*(n for n in WORK if n not in open_columns), "rest"], options))
    return pd.concat(found)


def _beside(before: pd.DataFrame, after: pd.DataFrame, same: list[str], options: str) -> pd.DataFrame:
    """Rows that agree in `same` and did not do the same work."""
    on = [f"on_{name}" for name in same]
    one, other = (side.assign(**{f"on_{name}": side[name] for name in same}) for side in (before, after))
    beside = one.merge(other, on=on, suffixes=tuple(f"_{side}" for side in SIDES))
    return beside[beside["work_before"] != beside["work_after"]].assign(compared=options)


def _are_without(runs: pd.DataFrame, options: str) -> "pd.Series[bool]":
    """Which can be the one before: one that another comparison made can, unless that sets the same."""
    mine = {COLUMN_OF.get(name, name) for name in _names(options)}
    fit = {
        other: other != options and mine.isdisjoint(COLUMN_OF.get(name, name) for name in _names(other))
        for other in runs["compare"].unique()
    }
    return runs["compare"].map(fit).astype(bool)


def _by_their_options(runs: pd.DataFrame) -> pd.DataFrame:
    """Those that have some options more than others."""
    every = works(runs)
    found = _beside(every, every, [name for name in WORK if name != "options"], "")
    early, late = (found[f"options_{side}"].map(options_of).map(frozenset).astype("object") for side in SIDES)
    more = late - early
    names, count = more.map(sorted).str.join(" ").astype("str"), more.map(len).astype("int64")
    found = found.assign(compared=names, count=count)[early < late]
    least = found.groupby("work_after")["count"].transform("min")
    return found[(found["count"] == least) & ~found["compared"].str.contains("|".join(VARIED_ALONE))]


def _names(options: str) -> frozenset[str]:
    return frozenset(word.split("=")[0] for word in options.split() if word.startswith("--"))


def _without(options: str, names: Iterable[str]) -> str:
    return " ".join(option for option in options_of(options) if option.split()[0] not in names)


def _shares_of_communication(runs: pd.DataFrame) -> "pd.Series[float]":
    """The fraction of a step, from profiled runs, by what they did: how long was measured does not matter here.

    A run that is timed is not profiled, because that slows its steps.
    """
    done = finished(runs).pipe(with_work)
    share = done["comm_time_s"] / done["time_epoch_s"]
    return share.dropna().groupby(done["step_work"]).median()
