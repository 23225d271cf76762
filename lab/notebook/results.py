"""The student's own measurements in the notebook: the table and the figures that the sweep's scripts have made."""

from __future__ import annotations

import base64
from pathlib import Path

from lab.base.words import as_html
from lab.notebook import session
from lab.notebook.card import framed, note_card
from lab.notebook.show import Card, one_sentence
from lab.syllabus.paths import student_folder

FIRST = ("time_per_epoch", "validation", "memory")  # the three that the questions are about


@one_sentence
def show_results(folder: str = "results") -> Card:
    """The table and the figures of results.csv in a folder of runs, as they were written last. Runs nothing."""
    from lab.sweep.collect.collect import FIGURES_FOLDER
    from lab.sweep.compare.table import summary
    from lab.sweep.draw.plot import read_results

    results = student_folder(session.code()) / folder
    if not (results / "results.csv").is_file():
        return note_card(f"{folder}/ has no results.csv yet: run the two commands above in a terminal.")
    table = summary(read_results(results / "results.csv"))
    parts = [f'<pre class="lab-table">{as_html(table)}</pre>']
    figures = results / FIGURES_FOLDER
    for file in sorted(figures.rglob("*.png"), key=_order):
        setting, name = file.relative_to(figures).parent.name, file.stem.replace("_", " ")
        parts += [f"<p><strong>{as_html(name)}, {as_html(setting)}</strong></p>"] if setting else []
        alt = f"{name[0].upper()}{name[1:]} over the number of devices; the numbers are in the table above."
        data = base64.b64encode(file.read_bytes()).decode("ascii")
        parts.append(
            f'<p><img alt="{as_html(alt)}" src="data:image/png;base64,{data}" style="max-width:100%"></p>'
        )
    return framed("results", parts, table)


def _order(file: Path) -> tuple[int, int, str]:
    """Those of the main setting before those in folders of their own, and the first three before the others."""
    place = FIRST.index(file.stem) if file.stem in FIRST else len(FIRST)
    return len(file.parts), place, str(file)
