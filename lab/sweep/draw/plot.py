"""From results.csv to figures: which runs belong in which figure, and where the files are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lab.base.errors import UserError
from lab.base.words import slug
from lab.slurm.states import BAD_ENDS, DONE
from lab.sweep.collect.collect import FIGURES_FOLDER
from lab.sweep.compare.frame import load
from lab.sweep.compare.pairs import unpaired
from lab.sweep.compare.points import baselines, finished
from lab.sweep.compare.reasons import in_words
from lab.sweep.compare.table import setting_titles
from lab.sweep.draw.style import DPI, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

read_results = load  # as scripts call it that students were given before there was a table


@dataclass
class Plots:
    """What was drawn."""

    files: list[Path] = field(default_factory=list)  # the PNG files; an SVG of each lies beside it
    notes: list[str] = field(default_factory=list)  # what a reader of the figures must know


def plot(
    results: Path, output: Path | None = None, *, command: str = "", target_accuracy: float | None = None
) -> Plots:
    """Draw every figure that the results have something for, as PNG and SVG.

    Runs that cannot be compared are not drawn in one figure: each setting (model, data set, precision, batch,
    device) has its own. Those of the setting with most runs are in `output` itself, the others in a folder of
    their own in it. What is seen across settings (sensitivity, before and after) is in `output`.

    Args:
        results: the results.csv that collect wrote.
        output: where the figures go; beside results.csv unless told otherwise.
        command: what was typed, for the figures' metadata.
        target_accuracy: a fraction, which the figure of the time to an accuracy asks for; see by_batch.

    Raises:
        UserError: results.csv cannot be used or has no finished run; the figures cannot be written.
    """
    from lab.sweep.draw.batches import fastest, without_epochs
    from lab.sweep.draw.sensitivity import left_out

    runs = load(results)
    output = output or results.parent / FIGURES_FOLDER
    plots = Plots()
    titles = setting_titles(runs["setting"])
    if finished(runs).empty:
        raise UserError(
            f"{results} has {len(runs)} run{'s' * (len(runs) > 1)}, but none is done: there is nothing to draw yet"
        )
    drawn = _with_a_curve(runs)
    for run in runs[(runs["status"] != DONE) & ~runs["setting"].isin(drawn["setting"])].itertuples():
        plots.notes.append(f"not drawn: {run.run_id} ({run.status}: {in_words(run.reason)})")
    most = finished(drawn)["setting"].value_counts(sort=False).idxmax()
    groups = dict(list(drawn.groupby("setting", sort=False)))
    for setting in sorted(groups, key=lambda setting: setting != most):
        members, folder = groups[setting], output if setting == most else output / slug(titles[setting])
        plots.files += draw_all(_of_setting(members, titles[setting], results.parent), folder, command)
        unfinished = members["run_id"][~members["status"].isin([DONE, *BAD_ENDS])]
        if len(unfinished):
            plots.notes.append(f"not finished, so not drawn: {', '.join(unfinished)}")
    plots.files += draw_all(_across(runs, results.parent, target_accuracy), output, command)
    to_accuracy = fastest(runs, results.parent, target_accuracy)
    lost = without_epochs(runs, results.parent)
    if target_accuracy is not None and not to_accuracy:
        raise UserError(
            f"--target-accuracy {target_accuracy:g}: {lost[0]}"
            if lost
            else f"--target-accuracy {target_accuracy:g}: no runs in {results} differ in the global batch alone "
            "and have the accuracy of several epochs; run_benchmarks.py --preset batches makes some"
        )
    plots.notes += [*left_out(runs), *unpaired(runs), *to_accuracy, *lost]
    return plots


def _with_a_curve(runs: pd.DataFrame) -> pd.DataFrame:
    """Without settings of which a single count of devices was measured: those are for the figures across settings.

    A baseline alone is kept, and so is everything where there is nothing else.
    """
    done = finished(runs)
    several = done.groupby("setting")["world_size"].nunique() > 1
    with_curve = {*several[several].index, *baselines(runs)["setting"]} or {*done["setting"]}
    return runs[runs["setting"].isin(with_curve)]


Drawing = Callable[[], "Figure | None"]


def _of_setting(runs: pd.DataFrame, title: str, folder: Path) -> dict[str, Drawing]:
    from lab.sweep.draw.figures import FIGURES
    from lab.sweep.draw.gpu_load import gpu_utilization

    own: dict[str, Drawing] = {name: partial(draw, runs, title) for name, draw in FIGURES.items()}
    return own | {"gpu_utilization": partial(gpu_utilization, runs, title, folder)}


def _across(runs: pd.DataFrame, folder: Path, target_accuracy: float | None) -> dict[str, Drawing]:
    from lab.sweep.draw.batches import time_to_accuracy
    from lab.sweep.draw.figures_across import ACROSS

    across: dict[str, Drawing] = {name: partial(draw, runs) for name, draw in ACROSS.items()}
    return across | {"time_to_accuracy": partial(time_to_accuracy, runs, folder, target_accuracy)}


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
