"""lab predict: from a few measured points to more devices, with how sure that is."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.sweep.compare.forecast import Talks
    from lab.sweep.compare.predict import Talk

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
        "--bandwidth",
        type=Path,
        metavar="FILE",
        help="bandwidth.csv of lab bandwidth: what talking costs (default: the one beside results.csv)",
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
    talks, not_taken = _links(args)
    forecasts, left_out = forecast(runs, args.devices, args.fit_on, talks)
    for one in forecasts:
        print("\n".join([*table(one), ""]))
    for sentence in left_out:
        print(f"Not predicted: {sentence}")
    for sentence in dict.fromkeys(not_taken):  # captured or not, the links are the same
        print(f"Links not taken from the bandwidth file: {sentence}")
    for doubt in doubts(runs):
        print(f"Doubtful: {doubt}")
    known = f" --fit-on {' '.join(map(str, args.fit_on))}" if args.fit_on else ""
    links = f" --bandwidth {args.bandwidth}" if args.bandwidth else ""
    command = f"lab predict {args.results} --devices {' '.join(map(str, args.devices))}{known}{links}"
    folder = args.output or args.results.parent / FIGURES_FOLDER
    files = draw_all(drawings(forecasts), folder, command)
    print(f"Drawn: {', '.join(file.name for file in files)} in {folder}")
    return 0


def _links(args: argparse.Namespace) -> "tuple[Talks | None, list[str]]":
    """What the bandwidth file says for runs of a machine and a strategy; sentences, as they come, of what it
    does not.

    Raises:
        UserError: the file that was asked for is of no use.
    """
    from lab.bandwidth.timings import FILE
    from lab.base.errors import UserError

    not_taken: list[str] = []
    file = args.bandwidth or args.results.parent / FILE
    if args.bandwidth is None and not file.is_file():
        return None, not_taken
    from lab.plan.talk import fits_in_a_node, talk

    try:
        found = fits_in_a_node(file)
    except UserError as error:
        if args.bandwidth:
            raise
        return None, [str(error)]

    def of_runs(parts: Mapping[str, str], strategy: str) -> "Talk | None":
        try:
            return talk(parts, strategy, found)
        except UserError as error:
            not_taken.append(f"{strategy}, {parts['model']}: {error}")
            return None

    return of_runs, not_taken
