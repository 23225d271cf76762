"""The student's own measurements in the notebook: the sweep's table and figures, and efficiencies of one's own."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lab.notebook import session
from lab.notebook.card import framed, note_card
from lab.notebook.show import Card, one_sentence
from lab.syllabus.paths import student_folder

if TYPE_CHECKING:
    import pandas as pd

AGREE = 0.01  # relative: of repeats one can take the median before or after dividing
_NOTHING_YET = "{}/ has no results.csv yet: run the two commands above in a terminal."
FIRST = ("time_per_epoch", "validation", "memory")  # the three that the questions are about


@one_sentence
def show_results(folder: str = "results") -> Card:
    """The table and the figures of results.csv in a folder of runs, as they were written last. Runs nothing."""
    from lab.sweep.collect.collect import FIGURES_FOLDER
    from lab.sweep.compare.frame import load
    from lab.sweep.compare.table import summary

    results = student_folder(session.code()) / folder
    if not (results / "results.csv").is_file():
        return note_card(_NOTHING_YET.format(folder))
    table = summary(load(results / "results.csv"))
    folder_of_figures = results / FIGURES_FOLDER
    figures = [
        (
            file.stem.replace("_", " "),
            file.relative_to(folder_of_figures).parent.name,
            base64.b64encode(file.read_bytes()).decode("ascii"),
        )
        for file in sorted(folder_of_figures.rglob("*.png"), key=_order)
    ]
    return framed("results.html", "results", table, table=table, figures=figures)


@one_sentence
def check_efficiency(mine: Callable[[Path], pd.Series[float]], folder: str = "results") -> Card:
    """Whether the efficiencies of a function of one's own are those of the lab's table. Runs nothing else.

    Args:
        mine: from a folder with a results.csv to a Series of efficiencies of strong scaling, by strategy and
            number of devices.
    """
    import pandas as pd

    from lab.sweep.compare.frame import load
    from lab.sweep.compare.points import points

    results = student_folder(session.code()) / folder
    if not (results / "results.csv").is_file():
        return note_card(_NOTHING_YET.format(folder))
    runs = load(results / "results.csv")
    ours = points(runs[runs["scaling"] == "strong"]).dropna(subset="efficiency")
    if ours["setting"].nunique() != 1:
        what = "several kinds of work" if len(ours) else "no efficiency"
        return note_card(f"{folder}/ has {what} with strong scaling: compare in a folder that has one.")
    own = mine(results)
    if own is None or own is ...:
        return note_card("Your function returns nothing yet.")
    if not isinstance(own, pd.Series) or own.index.nlevels != 2:
        return note_card(f"A Series by strategy and number of devices is wanted, not this: {type(own).__name__}.")
    for point in ours.itertuples():
        value = own.get((point.strategy, point.world_size), math.nan)
        if not math.isclose(value, point.efficiency, rel_tol=AGREE):
            return note_card(
                f"{point.label} on {point.world_size}: {value:.3f} by yours, {point.efficiency:.3f} by ours. Is "
                "it T(1) / (N T(N)), with T(1) of none on one device?"
            )
    said = ", ".join(f"{one.label} on {one.world_size} {one.efficiency:.0%}" for one in ours.itertuples())
    return note_card(f"Yours are ours: {said}.")


def _order(file: Path) -> tuple[int, int, str]:
    """Those of the main setting before those in folders of their own, and the first three before the others."""
    place = FIRST.index(file.stem) if file.stem in FIRST else len(FIRST)
    return len(file.parts), place, str(file)
