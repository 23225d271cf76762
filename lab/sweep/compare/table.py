"""results.csv as a table for people."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lab.base.allocator import KEEPS
from lab.slurm import states
from lab.sweep.compare.points import SETTING, Point, Row, baseline_times, grouped, is_baseline, number, points

HEADER = ("strategy", "devices", "time/epoch", "speed-up", "efficiency", "images/s", "loss", "accuracy", "memory")

SUSPICIOUS = 1.1  # an efficiency that only a disturbed baseline explains
ENOUGH_STEPS = 50  # measured; with fewer the spread of single steps shows


def summary(rows: Sequence[Row]) -> str:
    """One block for each setting: one line a point with the median of its repeats, then what has no figures."""
    baseline = baseline_times(rows)
    groups = grouped(rows)
    titles = setting_titles(groups)
    blocks = [_block(titles[key], key, members, baseline.get(key)) for key, members in groups.items()]
    counts = {state: sum(row["status"] == state for row in rows) for state in states.STATES}
    total = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return "\n\n".join([*blocks, f"{len(rows)} run{'s' * (len(rows) > 1)}: {total}"])


def _block(title: str, key: tuple[str, ...], members: Sequence[Row], baseline: float | None) -> str:
    found = points(members)
    repeated = any(len(point.rows) > 1 for point in found)
    weak = key[SETTING.index("scaling")] == "weak"
    one = next((point for point in found if (point.strategy, point.devices) == ("none", 1)), None)
    table: list[tuple[str, ...]] = [_header(repeated, weak)]
    table += [_cells(point, one if baseline else None, repeated, weak) for point in found]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = [title]
    for cells in table:
        shown = [cells[0].ljust(widths[0])]
        shown += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(shown).rstrip())
    for row in members:
        if row["status"] != states.DONE:
            name = (row["strategy"] or row["run_id"]).ljust(widths[0])
            why = f"{row['status']}: {row['reason']}"
            lines.append(f"  {name}  {(row['world_size'] or '?').rjust(widths[1])}  {why}")
    return "\n".join(lines + [f"  {note}" for note in notes(members, baseline)])


def _header(repeated: bool, weak: bool) -> tuple[str, ...]:
    strategy, devices, time, *others = HEADER
    time = "time/step" if weak else time
    return (strategy, devices, *(("runs", time, "spread") if repeated else (time,)), *others)


def notes(members: Sequence[Row], baseline: float | None) -> list[str]:
    """What a reader of one setting's table must know before believing it.

    Args:
        baseline: T(1) in seconds; None where no finished run gives it.
    """
    said = []
    finished = [row for row in members if row["status"] == states.DONE]
    if baseline is None and finished:
        said.append("no speed-up: there is no finished run of --strategy none on 1 device to compare with")
    if _is_too_fast(finished):
        said.append(_faster_than_ideal(finished))
    steps = [number(row, "measured_steps") for row in finished]
    if any(count < ENOUGH_STEPS for count in steps):
        least = min(count for count in steps if not math.isnan(count))
        said.append(
            f"only {least:.0f} steps were measured: use --epochs or --measure-steps for {ENOUGH_STEPS} or more"
        )
    for column in ("commit", "versions", "driver", "allocator"):
        what = column if column.endswith("s") else f"{column}s"
        different = sorted({row.get(column, "") for row in finished} - {""})
        if len(different) > 1:
            said.append(f"measured with different {what}: {'; '.join(different)}")
    return said


def _faster_than_ideal(finished: Sequence[Row]) -> str:
    """What can make N devices more than N times as fast as one, which to divide the work does not."""
    one = [row for row in finished if is_baseline(row)]
    disturbed = "faster than ideal: the run on 1 device was probably disturbed; repeat it on a quiet machine"
    if any(row["scaling"] == "weak" for row in one):
        return disturbed
    others = {row.get("allocator") or "not recorded" for row in one if row["device"] == "cpu"} - {KEEPS}
    if others:
        return (
            f"{disturbed}, without allocator settings of your own: the memory allocator "
            f"({', '.join(sorted(others))}) may have given the larger batch back to the kernel in every step"
        )
    return f"{disturbed}; or its larger batch costs more per image, as where caches hold only the smaller ones"


def doubts(rows: Sequence[Row]) -> list[str]:
    """What makes the measurements of a setting doubtful, for those who go on with them."""
    groups = grouped(rows)
    titles = setting_titles(groups)
    finished = {key: [row for row in members if row["status"] == states.DONE] for key, members in groups.items()}
    return [f"{titles[key]}: {_faster_than_ideal(done)}" for key, done in finished.items() if _is_too_fast(done)]


def _is_too_fast(finished: Sequence[Row]) -> bool:
    return any(point.efficiency().median > SUSPICIOUS for point in points(finished))


def setting_titles(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A title for each setting, no two the same: `cnn on shapes, fp32, global batch 256, strong scaling, CPU`."""
    return distinct({key: (describe_setting(key), describe_setting(key, whole=True)) for key in keys})


def distinct(titles: Mapping[tuple[str, ...], tuple[str, str]]) -> dict[tuple[str, ...], str]:
    """Of a short and a whole title for each key: the short one, or where two keys share it the whole one."""
    often = Counter(short for short, _ in titles.values())
    return {key: whole if often[short] > 1 else short for key, (short, whole) in titles.items()}


def describe_setting(key: tuple[str, ...], whole: bool = False) -> str:
    """What was trained on what; `whole`: with the options that say how long was measured."""
    row = dict(zip(SETTING, key, strict=True))
    parts = [
        " on ".join(filter(None, (row["model"], row["dataset"]))),
        row["precision"],
        row["batch"],
        f"{row['scaling']} scaling" if row["scaling"] else "",
        f"{row['epochs']} epochs" if row["epochs"] not in ("", "1") else "",
        "images on the device" if row["input"] == "device" else "",
        row["variant"] if whole else without_measuring(row["variant"]),
        "CPU" if row["device"] == "cpu" else row["device"],
    ]
    return ", ".join(filter(None, parts)) or "unknown"


def without_measuring(variant: str) -> str:
    """The options without those that say how long was measured: the table of points tells it better."""
    return re.sub(r"--measure-\w+ \d+ ?", "", variant).strip()


def _cells(point: Point, one: Point | None, repeated: bool, weak: bool) -> tuple[str, ...]:
    time, speed = point.seconds(), point.spread("images_per_sec")
    speed_up = speed.median / one.spread("images_per_sec").median if one is not None else math.nan
    shown_time = _format(time.median * 1000, "{:.1f} ms") if weak else _format(time.median, "{:.2f} s")
    spread = _format(time.share * 100, "±{:.1f}%") if time.count > 1 else "-"
    return (
        point.label,
        str(point.devices),
        *((str(time.count), shown_time, spread) if repeated else (shown_time,)),
        _format(speed_up, "{:.2f}x"),
        _format(point.efficiency().median * 100, "{:.0f}%"),
        _format(speed.median, "{:,.0f}"),
        _format(point.spread("val_loss").median, "{:.4f}", missing="nan"),
        _format(point.spread("val_top1").median * 100, "{:.1f}%", missing="nan"),
        _format(point.spread("mem_gb").median, "{:.2f} GiB"),
    )


def _format(value: float, form: str, missing: str = "-") -> str:
    return missing if math.isnan(value) else form.format(value)
