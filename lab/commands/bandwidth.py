"""lab bandwidth: how long collectives take over sizes and ranks, and what a message and a byte cost."""

import argparse
from collections.abc import Sequence
from pathlib import Path

HELP = "measure all-reduce, all-gather and reduce-scatter over sizes and ranks, and fit latency and bandwidth"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
FURTHEST = {True: 16 * 2**20, False: 256 * 2**20}  # bytes by default, on CPUs and on GPUs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="fit and draw a bandwidth.csv of before, measure nothing",
    )
    parser.add_argument(
        "--ranks",
        nargs="+",
        type=int,
        metavar="N",
        help="start so many here (default: 2, 4, ... as there are devices)",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        metavar="BYTES",
        help="such as 1K 64K 4M (default: 1K, 4K, ... to 16M, on GPUs to 256M)",
    )
    parser.add_argument("--cpu", action="store_true", help="gloo on the CPU, also where there are GPUs")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for file and figure (default: bandwidth/)")


def run(args: argparse.Namespace) -> int:
    from lab.bandwidth import timings as file
    from lab.base.errors import UsageError

    if args.file is not None:
        given = [name for name in ("ranks", "sizes", "cpu") if getattr(args, name)]
        if given:
            raise UsageError(f"{args.file} is drawn as it is: --{given[0]} is for measuring")
        timings, folder = file.load(args.file), args.output or args.file.parent
    else:
        measured = _measured(args)
        if measured is None:
            return 0  # not the first rank: that one tells
        timings, folder = measured, args.output or Path("bandwidth")
        folder.mkdir(parents=True, exist_ok=True)
        file.save(timings, folder / file.FILE)
    from lab.bandwidth.draw import draw
    from lab.bandwidth.fit import fits, table, timing_table
    from lab.sweep.draw.plot import draw_all

    found, why_not = fits(timings)
    print("\n".join([*timing_table(timings), "", *(table(found) if found else [])]))
    for sentence in why_not:
        print(f"Not fitted: {sentence}")
    files = draw_all({"bandwidth": lambda: draw(timings, found)}, folder, "lab bandwidth")
    print(f"Drawn: {', '.join(one.name for one in files)} in {folder}")
    return 0


def _measured(args: argparse.Namespace) -> list | None:
    """The timings; None on all ranks but the first of a launcher's."""
    import sys

    from lab.bandwidth.launch import launched, measure_here
    from lab.bandwidth.timings import require_enough
    from lab.base.errors import UsageError
    from lab.base.machine import usable_cores
    from lab.sweep.launch.local import available_devices

    for count in args.ranks or ():
        if count < 2:
            raise UsageError(f"--ranks {count}: a collective takes at least 2")
    place = launched()
    if place is not None:
        from lab.bandwidth.measure import measure

        if args.ranks:
            raise UsageError(f"--ranks starts ranks here; under a launcher its own {place[2]} measure")
        if place[2] < 2:
            raise UsageError("the launcher started a single rank: a collective takes at least 2")
        import torch

        sizes = _sizes(args.sizes, cpu=args.cpu or not torch.cuda.is_available())
        timings = measure(sizes, rank=place[0], local_rank=place[1], ranks=place[2], cpu=args.cpu)
        return timings if place[0] == 0 else None
    devices, what = available_devices(cpu=args.cpu)
    on_cpu = what != "GPUs"
    counts = sorted(set(args.ranks or [2**n for n in range(1, 11) if n == 1 or 2**n <= devices]))
    if not on_cpu and counts[-1] > devices:
        raise UsageError(f"--ranks {counts[-1]}: there are {devices} GPUs here; take fewer, or --cpu")
    sizes = _sizes(args.sizes, cpu=on_cpu)
    for size in sizes:
        require_enough(size, counts[-1])
    timings = []
    for count in counts:
        print(f"measuring on {count} ranks ...", file=sys.stderr, flush=True)
        timings += measure_here(count, sizes, cpu=on_cpu)
    if on_cpu and counts[-1] > usable_cores():
        print(f"More ranks than the {usable_cores()} cores here: they wait for each other's turn, too.")
    return timings


def _sizes(given: Sequence[str] | None, *, cpu: bool) -> list[int]:
    """Bytes, the least first.

    Raises:
        UsageError: one is not a number of bytes.
    """
    import re

    from lab.base.errors import UsageError

    if given is None:
        return [2**n for n in range(10, FURTHEST[cpu].bit_length(), 2)]
    sizes = set()
    for text in given:
        said = re.fullmatch(r"([0-9]{1,12})([KMG]?)(i?B)?", text, re.IGNORECASE)
        if not said or not int(said[1]):
            raise UsageError(f"--sizes {text}: not a number of bytes, such as 65536, 64K or 4M")
        sizes.add(int(said[1]) * UNITS[said[2].upper()])
    return sorted(sizes)
