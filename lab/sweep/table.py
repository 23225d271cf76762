"""results.csv as a table for people."""

import math
from collections.abc import Sequence

from lab.sweep.collect import SETTING, Row, baseline_times, grouped, number

HEADER = ("strategy", "devices", "time/epoch", "speed-up", "efficiency", "images/s", "loss", "accuracy", "memory")


SUSPICIOUS = 1.1  # an efficiency that only a disturbed baseline explains


def summary(rows: Sequence[Row]) -> str:
    """One block for each setting, one line a run; runs without figures show their status and reason."""
    baseline = baseline_times(rows)
    blocks = []
    for key, members in grouped(rows).items():
        table = [HEADER, *(_cells(row, baseline.get(key)) for row in members)]
        widths = [max(len(line[i]) for line in table if len(line) == len(HEADER)) for i in range(len(HEADER))]
        lines = [describe_setting(key)]
        for cells in table:
            shown = [cells[0].ljust(widths[0]), cells[1].rjust(widths[1])]
            if len(cells) == len(HEADER):
                shown += [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
            else:
                shown += cells[2:]
            lines.append("  " + "  ".join(shown).rstrip())
        if baseline.get(key) is None and any(row["status"] == "done" for row in members):
            lines.append("  no speed-up: there is no finished run of --strategy none on 1 device to compare with")
        if any(number(row, "eff_strong") > SUSPICIOUS for row in members):
            lines.append(
                "  faster than ideal: the run on 1 device was probably disturbed; repeat it on a quiet machine"
            )
        blocks.append("\n".join(lines))
    counts = {
        name: sum(row["status"] == name for row in rows) for name in ("done", "failed", "running", "pending")
    }
    total = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return "\n\n".join([*blocks, f"{len(rows)} run{'s' * (len(rows) > 1)}: {total}"])


def describe_setting(key: tuple[str, ...]) -> str:
    """What was trained on what: `cnn on shapes, fp32, global batch 256, strong scaling, CPU`."""
    row = dict(zip(SETTING, key, strict=True))
    parts = [
        " on ".join(filter(None, (row["model"], row["dataset"]))),
        row["precision"],
        f"global batch {row['global_batch']}" if row["global_batch"] else "",
        f"{row['scaling']} scaling" if row["scaling"] else "",
        "CPU" if row["device"] == "cpu" else row["device"],
    ]
    return ", ".join(filter(None, parts)) or "unknown"


def _cells(row: Row, baseline: float | None) -> tuple[str, ...]:
    name, devices = row["strategy"] or row["run_id"], row["world_size"] or "?"
    if row["status"] != "done":
        return (name, devices, f"{row['status']}: {row['reason']}")
    seconds = number(row, "time_epoch_s")
    return (
        name,
        devices,
        _format(seconds, "{:.2f} s"),
        _format(baseline / seconds if baseline and seconds > 0 else math.nan, "{:.2f}x"),
        _format(number(row, "eff_strong") * 100, "{:.0f}%"),
        _format(number(row, "images_per_sec"), "{:,.0f}"),
        _format(number(row, "val_loss"), "{:.4f}", missing="nan"),
        _format(number(row, "val_top1") * 100, "{:.1f}%", missing="nan"),
        _format(number(row, "mem_gb"), "{:.2f} GiB"),
    )


def _format(value: float, form: str, missing: str = "-") -> str:
    return missing if math.isnan(value) else form.format(value)
