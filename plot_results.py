#!/usr/bin/env python
"""Section 7: draw results/results.csv: time per epoch, validation loss and accuracy, peak memory.

python plot_results.py
python plot_results.py results/demo/results.csv
"""

import argparse
import sys
from pathlib import Path

from lab.sweep.plot import plot
from lab.training.errors import UserError


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
    args = parser.parse_args(argv)
    try:
        plots = plot(args.csv, args.output)
    except UserError as error:
        print(f"plot_results.py: {error}", file=sys.stderr)
        return error.exit_code
    for note in plots.notes:
        print(note)
    for path in plots.files:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
