#!/usr/bin/env python
"""Section 7: draw results/results.csv: time, throughput, efficiency, validation, memory, and what was varied.

python plot_results.py
python plot_results.py results/demo/results.csv
python plot_results.py --report report.html       # one page with everything, and outlines of texts beside it
python plot_results.py --report report.html --pdf # and the paper's outline, or what you made of it, as a PDF
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
    parser.add_argument(
        "--pdf",
        action="store_true",
        help="with --report: the paper's outline, or what you have made of it, as a PDF with its figures",
    )
    parser.add_argument(
        "--target-accuracy",
        type=float,
        metavar="FRACTION",
        help="for the time to an accuracy against the batch (default: 95%% of the best of these runs)",
    )
    args = parser.parse_args(argv)
    if args.pdf and not args.report:
        parser.error("--pdf has no effect without --report: plot_results.py --report report.html --pdf")
    if args.target_accuracy is not None and not 0 < args.target_accuracy <= 1:
        parser.error(f"--target-accuracy {args.target_accuracy:g}: give a fraction, 0.85 say for 85%")
    # Here: exit_code() has a sentence for a Python without pandas.
    from lab.sweep.compare.frame import load
    from lab.sweep.draw.pdf import write_pdf
    from lab.sweep.draw.plot import plot
    from lab.sweep.draw.report import write_report

    try:
        plots = plot(
            args.csv,
            args.output,
            command=shlex.join(["python", "plot_results.py", *argv]),
            target_accuracy=args.target_accuracy,
        )
        if args.report:
            plots.files += write_report(load(args.csv), args.csv.parent, plots.files, args.report)
            if args.pdf:
                paper = args.report.with_name(f"{args.report.stem}_paper.md")
                plots.files.append(write_pdf(paper, paper.with_suffix(".pdf")))
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
