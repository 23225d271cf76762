"""A benchmark sweep: plan, launch, collect, compare, draw. Knows run folders and CSV, not torch.

May import: base, sweep/compare, sweep/draw, sweep/plan.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.errors import lacking

if TYPE_CHECKING:
    import pandas as pd


def load(results: str | Path = "results") -> "pd.DataFrame":
    """All runs of a sweep as a table of pandas, a row a run: what the lab's own tables and figures are made from.

    Counts are Int64 (<NA> where unknown), what was measured is float64 (NaN), a text that is unknown is empty.
    Beside the columns of results.csv there are `batch`, `setting`, `label`, `seconds` and `efficiency`; see
    lab.sweep.compare.frame.typed.

    Args:
        results: the folder that collect_results.py was given, or its results.csv.

    Raises:
        UserError: there is no results.csv, it is not what collect_results.py writes, or this Python lacks pandas.
    """
    try:
        from lab.sweep.compare import frame  # here, so that what only launches jobs does without pandas
    except ModuleNotFoundError as error:
        raise lacking(error) from error

    path = Path(results)
    return frame.load(path / "results.csv" if path.is_dir() else path)
