"""lab predict: from a few measured points to more devices, with how sure that is."""

import argparse
from pathlib import Path

HELP = "predict how a sweep goes on, from what a few devices did, and compare where more was measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="results.csv of collect_results.py")
    parser.add_argument("--devices", nargs="+", type=int, required=True, metavar="N", help="predict for these")
    parser.add_argument(
        "--fit-on",
        nargs="+",
        type=int,
        default=(),
        metavar="N",
        help="what the model may know: runs on so many devices (default: all below the least of --devices)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="for the figures (default: figures/ beside results.csv)"
    )


def run(args: argparse.Namespace) -> int:
    from lab.sweep.collect.collect import FIGURES_FOLDER
    from lab.sweep.compare.forecast import forecast, table
    from lab.sweep.compare.frame import load
    from lab.sweep.compare.table import doubts
    from lab.sweep.draw.forecast_figure import drawings
    from lab.sweep.draw.plot import draw_all

    runs = load(args.results)
    forecasts, left_out = forecast(runs, args.devices, args.fit_on)
    for one in forecasts:
        print("\n".join([*table(one), ""]))
    for sentence in left_out:
        print(f"Not predicted: {sentence}")
    for doubt in doubts(runs):
        print(f"Doubtful: {doubt}")
    known = f" --fit-on {' '.join(map(str, args.fit_on))}" if args.fit_on else ""
    command = f"lab predict {args.results} --devices {' '.join(map(str, args.devices))}{known}"
    folder = args.output or args.results.parent / FIGURES_FOLDER
    files = draw_all(drawings(forecasts), folder, command)
    print(f"Drawn: {', '.join(file.name for file in files)} in {folder}")
    return 0
