#!/usr/bin/env python
"""Section 7: draw results/results.csv: time, throughput, efficiency, validation, memory, and what was varied.

python plot_results.py
python plot_results.py results/demo/results.csv
python plot_results.py --report report.html       # one page with everything, and outlines of texts beside it
"""

import argparse
import shlex
import sys
from pathlib import Path

from lab.base.errors import UserError
from lab.base.terminal import exit_code


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw the figures of a sweep from results.csv.")
    parser.add_argument(
        "csv",
        type=Path,
        nargs="?",
        default=Path("results", "results.csv"),
        metavar="CSV",
        help="what collect_results.py wrote (default: results/results.csv)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where the figures go (default: figures/ beside the CSV)"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="HTML",
        help="also write one self-contained page: figures, tables, resources",
    )
    args = parser.parse_args(argv)
    # Here: exit_code() has a sentence for a Python without pandas.
    from lab.sweep.compare.frame import load
    from lab.sweep.draw.plot import plot
    from lab.sweep.draw.report import write_report

    try:
        plots = plot(args.csv, args.output, command=shlex.join(["python", "plot_results.py", *argv]))
        if args.report:
            plots.files += write_report(load(args.csv), args.csv.parent, plots.files, args.report)
    except UserError as error:
        print(f"plot_results.py: {error}", file=sys.stderr)
        return error.exit_code
    for note in plots.notes:
        print(note)
    for path in plots.files:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
