"""lab start: write the student's package to a folder."""

import argparse
from pathlib import Path

from lab.syllabus.package import start

HELP = "make a folder to work in: the exercises and all that belongs to them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="a new folder, such as my-lab")
    parser.add_argument(
        "--force",
        action="store_true",
        help="write into a folder that is not empty, and back up what is overwritten",
    )


def run(args: argparse.Namespace) -> int:
    folder = args.folder.expanduser()
    backup = start(folder, force=args.force)
    if backup:
        print(f"What was there before is kept in {backup}")
    print(f"Your lab is in {folder}. To begin:")
    print(f"  cd {folder}")
    print("  lab check      # or lab jupyter: the guided notebooks")
    return 0
