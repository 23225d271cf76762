#!/usr/bin/env python
"""Section 7: run the same training on 1, 2, 4, 8 devices with every strategy, and keep the records.

    python run_benchmarks.py                                     your exercises/, through Slurm where it is
    python run_benchmarks.py --devices 1 2 --epochs 3 -- --dataset cifar10 --data-dir data
    python run_benchmarks.py --scaling strong weak --repeat 3 --measure-steps 100 -- --input device
    python run_benchmarks.py --preset course                     a whole sweep on two CPU cores in ten minutes
    python run_benchmarks.py --preset course --dry-run           only show the commands, and what they cost

The same command again does what is not done yet. Then ./plot_results.sh draws the figures.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.base.terminal import exit_code
from lab.runs.options.model import STRATEGIES
from lab.runs.options.precision import PRECISIONS
from lab.sweep.launch import Choices, run_sweep
from lab.sweep.plan import Sweep
from lab.sweep.plan.check import SCALINGS, refuse_ignored
from lab.sweep.plan.presets import PRESETS


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Run a benchmark sweep: device counts x strategies, one run folder each.",
        epilog="Everything after -- is passed to main.py: run_benchmarks.py --devices 1 2 -- --model resnet18",
        allow_abbrev=False,
    )
    default = Sweep()
    shown = {name: " ".join(map(str, getattr(default, name))) for name in ("devices", "strategies")}

    group = parser.add_argument_group("what is run; several values make a job for each combination")
    group.add_argument("--preset", choices=PRESETS, metavar="NAME", help=f"ready choices: {', '.join(PRESETS)}")
    group.add_argument(
        "--devices", type=int, nargs="+", metavar="N", help=f"numbers of devices (default: {shown['devices']})"
    )
    group.add_argument(
        "--strategies",
        nargs="+",
        choices=STRATEGIES,
        help=f"default: {shown['strategies']}; none on one device is always run, as the baseline",
    )
    group.add_argument(
        "--scaling",
        dest="scalings",
        nargs="+",
        choices=SCALINGS,
        help="strong: the same global batch on any number of devices; weak: the same on each (default: strong)",
    )
    group.add_argument(
        "--global-batch-size",
        dest="global_batches",
        type=int,
        nargs="+",
        metavar="N",
        help=f"images per step over all devices, strong scaling (default: {default.global_batches[0]})",
    )
    group.add_argument(
        "--per-device-batch-size",
        dest="per_device_batches",
        type=int,
        nargs="+",
        metavar="N",
        help=f"images per step on each device, weak scaling (default: {default.per_device_batches[0]})",
    )
    group.add_argument("--precision", dest="precisions", nargs="+", choices=PRECISIONS, help="default: main.py's")
    group.add_argument(
        "--bucket-cap-mb", dest="bucket_caps", type=float, nargs="+", metavar="MIB", help="ddp only (default: 25)"
    )
    group.add_argument(
        "--num-workers",
        dest="workers",
        type=int,
        nargs="+",
        metavar="N",
        help="loader processes a rank (default: 0)",
    )
    group.add_argument(
        "--compare",
        metavar="OPTIONS",
        help="run every job with these options of main.py too, for before and after: --compare=--capture",
    )
    group.add_argument("--repeat", dest="repeats", type=int, metavar="N", help="runs of each point (default: 1)")

    group = parser.add_argument_group("how long")
    group.add_argument("--epochs", type=int, metavar="N", help=f"for each job (default: {default.epochs})")
    group.add_argument(
        "--measure-steps",
        type=int,
        metavar="N",
        help="instead of epochs: time N steps, at least 50, after --measure-warmup others",
    )
    group.add_argument(
        "--measure-warmup",
        type=int,
        metavar="N",
        help=f"steps that are discarded (default: {default.measure_warmup})",
    )

    group = parser.add_argument_group("where and how")
    group.add_argument(
        "--code",
        metavar="DIR",
        default=os.environ.get("CODE") or None,
        help=f"the folder with main.py: exercises or solutions (default: $CODE, else {default.code})",
    )
    group.add_argument(
        "--launcher",
        choices=("local", "slurm"),
        help="local: here, one after the other; slurm: sbatch run.sh (default: slurm where it answers)",
    )
    group.add_argument("--cpu", action="store_true", default=None, help="CPU ranks also where there are GPUs")
    group.add_argument("--output-dir", type=Path, metavar="DIR", help="for the run folders (default: results)")
    group.add_argument("--time-limit", type=int, metavar="MIN", help="for each job; it is ended then")
    group.add_argument("--max-jobs", type=int, metavar="N", help="in Slurm's queue at a time; waits")
    group.add_argument(
        "--stop-after", type=float, metavar="MIN", help="begin no job that would end later than this"
    )
    group.add_argument("--rerun", action="store_true", help="run also what is done already")
    group.add_argument("--dry-run", action="store_true", help="print the exact commands and their cost, and stop")
    return parser


def parse_args(argv: list[str]) -> tuple[tuple[Sweep, ...], Choices]:
    """What is to be run and how.

    Raises:
        UsageError: an option has no effect, or a value that is none.
    """
    # What follows -- is not ours but main.py's.
    split = argv.index("--") if "--" in argv else len(argv)
    ours, passed_on = argv[:split], argv[split + 1 :]
    args = build_parser().parse_args(ours)
    for option in ("--max-jobs", "--time-limit", "--stop-after"):
        value = getattr(args, option.strip("-").replace("-", "_"))
        if value is not None and not value > 0:
            raise UsageError(f"{option} {value:g}: give a number above 0, or leave it out for no limit")

    chosen = {name: getattr(args, name, None) for name in vars(Sweep())}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    for name, value in chosen.items():
        if isinstance(value, list):
            chosen[name] = tuple(value)
    if args.compare is not None:
        chosen["compare"] = tuple(args.compare.split())
    if args.epochs is not None and args.measure_steps is None:
        chosen["measure_steps"] = 0  # a preset's
    sweeps = PRESETS[args.preset] if args.preset else (Sweep(),)
    choices = Choices(
        dry_run=args.dry_run,
        any_devices=bool(args.devices or args.preset),
        rerun=args.rerun,
        max_jobs=args.max_jobs or 0,
        stop_after=args.stop_after or 0,
    )
    sweeps = tuple(replace(sweep, **chosen, flags=(*sweep.flags, *passed_on)) for sweep in sweeps)
    refuse_ignored(chosen, sweeps)
    return sweeps, choices


def main(argv: list[str]) -> int:
    try:
        sweeps, choices = parse_args(argv)
        return run_sweep(*sweeps, choices=choices)
    except UserError as error:
        print(f"run_benchmarks.py: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
