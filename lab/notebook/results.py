"""The student's own measurements in the notebook: the table and the figures that the sweep's scripts have made."""

from __future__ import annotations

import base64
from pathlib import Path

from lab.notebook import session
from lab.notebook.card import framed, note_card
from lab.notebook.show import Card, one_sentence
from lab.syllabus.paths import student_folder

FIRST = ("time_per_epoch", "validation", "memory")  # the three that the questions are about


@one_sentence
def show_results(folder: str = "results") -> Card:
    """The table and the figures of results.csv in a folder of runs, as they were written last. Runs nothing."""
    from lab.sweep.collect.collect import FIGURES_FOLDER
    from lab.sweep.compare.frame import load
    from lab.sweep.compare.table import summary

    results = student_folder(session.code()) / folder
    if not (results / "results.csv").is_file():
        return note_card(f"{folder}/ has no results.csv yet: run the two commands above in a terminal.")
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


def _order(file: Path) -> tuple[int, int, str]:
    """Those of the main setting before those in folders of their own, and the first three before the others."""
    place = FIRST.index(file.stem) if file.stem in FIRST else len(FIRST)
    return len(file.parts), place, str(file)
