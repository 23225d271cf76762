#!/usr/bin/env python
"""Section 7: collect the run folders and logs in results/ into results/results.csv, and show them as a table.

python collect_results.py
python collect_results.py results/demo
python collect_results.py results --logs slurm-12.out       a log for which there is no run folder
"""

import argparse
import sys
from pathlib import Path

from lab.base.errors import UserError
from lab.base.terminal import exit_code
from lab.sweep.collect import collect


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Collect run folders into results.csv.")
    parser.add_argument(
        "results",
        type=Path,
        nargs="?",
        default=Path("results"),
        metavar="RESULTS",
        help="the folder that holds the run folders (default: results)",
    )
    parser.add_argument(
        "--logs", type=Path, nargs="+", default=[], metavar="LOG", help="logs of runs that have no folder there"
    )
    args = parser.parse_args(argv)
    from lab.sweep.compare.table import summary  # here: exit_code() has a sentence for a Python without pandas

    try:
        collection = collect(args.results, args.logs)
    except UserError as error:
        print(f"collect_results.py: {error}", file=sys.stderr)
        return error.exit_code
    print(summary(collection.rows))
    for name in collection.ignored:
        why = "" if name.endswith(")") else ", which holds no run's records"  # some say why themselves
        print(f"ignored: {args.results / name}{why}")
    print(f"-> {collection.path}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
