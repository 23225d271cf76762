"""lab course: the nbgrader course, for instructors."""

import argparse
from pathlib import Path

HELP = "write the nbgrader course: the assignments, their configuration and the marking guides (for instructors)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["build"], help="write the course directory, or bring it up to date")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder, or one that this command has made")
    parser.add_argument(
        "--keep-mine",
        action="store_true",
        help="leave what you have changed in it as it is, also where the lab has changed it too",
    )


def run(args: argparse.Namespace) -> int:
    from lab.course.books import LAB, LAB_TWO
    from lab.course.build import build, strangers

    folder = args.folder.expanduser()
    built = build(folder, keep_mine=args.keep_mine)
    print(f"{folder}: {len(built.written)} files written" if built.written else f"{folder} is up to date")
    for path in built.kept:
        print(f"  {path} is as you have changed it")
    for path in built.saved:
        print(f"  what was replaced lies in {path}: put your changes, if there are any, into the new one")
    for name in strangers(folder):
        print(f"  {name} is not the lab's; nbgrader will release it too")
    print(f"Model answers, for you only: {folder / LAB.page}")
    print("To release it to students:")
    print(f"  cd {folder}")
    print(f"  nbgrader generate_assignment {LAB.name} --force")
    print(f"  nbgrader release_assignment {LAB.name} --force")
    print(
        f"Part two, for those who want more: the same with {LAB_TWO.name}; model answers: {folder / LAB_TWO.page}"
    )
    return 0
