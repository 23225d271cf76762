#!/usr/bin/env python
"""Section 7: run the same training on 1, 2, 4, 8 devices with every strategy, and keep the records.

    python run_benchmarks.py                                     your exercises/, through Slurm where it is
    python run_benchmarks.py --devices 1 2 --epochs 3 -- --dataset cifar10 --data-dir data
    python run_benchmarks.py --dry-run                           only show the commands

Then ./plot_results.sh draws the figures.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from lab.sweep.launch import run_sweep
from lab.sweep.plan import PRESETS, Sweep
from lab.training.errors import UserError
from lab.training.options import STRATEGIES


def parse_args(argv: list[str]) -> tuple[Sweep, argparse.Namespace]:
    # What follows -- is not ours but main.py's.
    split = argv.index("--") if "--" in argv else len(argv)
    ours, passed_on = argv[:split], argv[split + 1 :]

    parser = argparse.ArgumentParser(
        description="Run a benchmark sweep: device counts x strategies, one run folder each.",
        epilog="Everything after -- is passed to main.py: run_benchmarks.py --devices 1 2 -- --precision bf16",
        allow_abbrev=False,
    )
    default = Sweep()
    shown = {name: " ".join(map(str, getattr(default, name))) for name in ("devices", "strategies")}
    parser.add_argument(
        "--devices", type=int, nargs="+", metavar="N", help=f"numbers of devices (default: {shown['devices']})"
    )
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=STRATEGIES,
        help=f"default: {shown['strategies']}; none on one device is always run, as the baseline",
    )
    parser.add_argument(
        "--global-batch-size",
        dest="global_batch",
        type=int,
        metavar="N",
        help=f"images per step over all devices, the same for every point (default: {default.global_batch})",
    )
    parser.add_argument("--epochs", type=int, metavar="N", help=f"for each job (default: {default.epochs})")
    parser.add_argument(
        "--code", metavar="DIR", help=f"the folder with main.py: exercises or solutions (default: {default.code})"
    )
    parser.add_argument(
        "--launcher",
        choices=("local", "slurm"),
        help="local: here, one after the other; slurm: sbatch run.sh (default: slurm where sbatch is)",
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="for the run folders (default: results)")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="a ready set of choices; options override it")
    parser.add_argument("--dry-run", action="store_true", help="print the exact commands and stop")
    args = parser.parse_args(ours)

    sweep = PRESETS[args.preset] if args.preset else default
    chosen = {name: getattr(args, name) for name in vars(default) if getattr(args, name, None) is not None}
    for name in ("devices", "strategies"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    return replace(sweep, **chosen, flags=(*sweep.flags, *passed_on)), args


def main(argv: list[str]) -> int:
    sweep, args = parse_args(argv)
    try:
        return run_sweep(sweep, dry_run=args.dry_run, any_devices=bool(args.devices or args.preset))
    except UserError as error:
        print(f"run_benchmarks.py: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
