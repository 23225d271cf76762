"""From results.csv to figures: which runs belong in which figure, and where the files are."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.errors import UserError
from lab.base.words import slug
from lab.runs.records.folder import CORE_COLUMNS
from lab.slurm.states import BAD_ENDS, DONE
from lab.sweep.collect.collect import FIGURES_FOLDER
from lab.sweep.collect.run_folder import RESULT_COLUMNS
from lab.sweep.compare.pairs import unpaired
from lab.sweep.compare.points import Row, device_count, grouped, is_baseline
from lab.sweep.compare.table import setting_titles
from lab.sweep.draw.style import DPI, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Plots:
    """What was drawn."""

    files: list[Path] = field(default_factory=list)  # the PNG files; an SVG of each lies beside it
    notes: list[str] = field(default_factory=list)  # what a reader of the figures must know


def plot(results: Path, output: Path | None = None, *, command: str = "") -> Plots:
    """Draw every figure that the results have something for, as PNG and SVG.

    Runs that cannot be compared are not drawn in one figure: each setting (model, data set, precision, batch,
    device) has its own. Those of the setting with most runs are in `output` itself, the others in a folder of
    their own in it. What is seen across settings (sensitivity, before and after) is in `output`.

    Args:
        results: the results.csv that collect wrote.
        output: where the figures go; beside results.csv unless told otherwise.
        command: what was typed, for the figures' metadata.

    Raises:
        UserError: results.csv cannot be used or has no finished run; the figures cannot be written.
    """
    rows = read_results(results)
    output = output or results.parent / FIGURES_FOLDER
    plots = Plots()
    every = grouped(rows)
    titles = setting_titles(every)
    groups = _with_a_curve({key: members for key, members in every.items() if _drawable(members)})
    if not groups:
        raise UserError(
            f"{results} has {len(rows)} run{'s' * (len(rows) > 1)}, but none is done: there is nothing to draw yet"
        )
    for key, members in every.items():
        if key not in groups:
            lost = [row for row in members if row["status"] != DONE]
            plots.notes += [f"not drawn: {row['run_id']} ({row['status']}: {row['reason']})" for row in lost]
    most = max(groups, key=lambda key: sum(row["status"] == DONE for row in groups[key]))
    for key in sorted(groups, key=lambda key: key != most):
        title = titles[key]
        folder = output if key == most else output / slug(title)
        plots.files += draw_all(_of_setting(groups[key], title), folder, command)
        unfinished = [row["run_id"] for row in groups[key] if row["status"] not in (DONE, *BAD_ENDS)]
        if unfinished:
            plots.notes.append(f"not finished, so not drawn: {', '.join(unfinished)}")
    plots.files += draw_all(_across(rows), output, command)
    plots.notes += unpaired(rows)
    return plots


def read_results(path: Path) -> list[Row]:
    """The rows of results.csv.

    Raises:
        UserError: it is missing, empty, or not what collect_results.py writes.
    """
    again = "write it with collect_results.py"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames
            rows = [dict.fromkeys(RESULT_COLUMNS, "") | row for row in reader]  # of an earlier version too
    except FileNotFoundError:
        raise UserError(f"there is no {path}: {again}") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{path} is not a CSV file: {again}") from None
    if not columns or not rows:
        raise UserError(f"{path} is empty: {again}")
    if not {*CORE_COLUMNS, "train_loss", "val_loss", "device"} <= set(columns):
        raise UserError(f"{path} lacks columns of a results.csv: {again}")
    for line, row in enumerate(rows, start=2):
        # DictReader keeps surplus values under the key None, and gives None for missing ones
        cut_off = None in row or None in row.values()
        if cut_off or (row["status"] == "done" and not device_count(row["world_size"])):
            raise UserError(f"line {line} of {path} is damaged: {again}")
    return rows


def _drawable(rows: list[Row]) -> bool:
    return any(row["status"] == "done" for row in rows)


def _with_a_curve(groups: dict[tuple[str, ...], list[Row]]) -> dict[tuple[str, ...], list[Row]]:
    """Without settings of which a single count of devices was measured: those are for the figures across settings.

    A baseline alone is kept, and so is everything where there is nothing else.
    """
    with_curve = {
        key: rows
        for key, rows in groups.items()
        if len({row["world_size"] for row in rows if row["status"] == DONE}) > 1 or any(map(is_baseline, rows))
    }
    return with_curve or groups


Drawing = Callable[[], "Figure | None"]


def _of_setting(rows: list[Row], title: str) -> dict[str, Drawing]:
    from lab.sweep.draw.figures import FIGURES

    return {name: partial(draw, rows, title) for name, draw in FIGURES.items()}


def _across(rows: list[Row]) -> dict[str, Drawing]:
    from lab.sweep.draw.figures_across import ACROSS

    return {name: partial(draw, rows) for name, draw in ACROSS.items()}


def draw_all(drawings: Mapping[str, Drawing], folder: Path, command: str) -> list[Path]:
    """Draw figures, as PNG and SVG; returns the PNG files.

    Args:
        drawings: by their files' names; one that makes no figure leaves none behind.
        command: what was typed, for the figures' metadata; a figure's label is there as its title.

    Raises:
        UserError: they cannot be written.
    """
    from lab.sweep.draw.axes import plt

    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with plt.rc_context(STYLE):
            for name, draw in drawings.items():
                png = folder / f"{name}.png"
                figure = draw()
                if figure is None:  # an earlier one would be of other results
                    png.unlink(missing_ok=True)
                    png.with_suffix(".svg").unlink(missing_ok=True)
                    continue
                about = {
                    name: text
                    for name, text in (("Title", str(figure.get_label())), ("Description", command))
                    if text
                }
                figure.savefig(png, dpi=DPI, metadata=about)
                figure.savefig(png.with_suffix(".svg"), metadata={"Date": None, **about})
                plt.close(figure)
                files.append(png)
    except OSError as error:
        raise UserError(f"cannot write figures to {folder} ({error.strerror})") from error
    return files
