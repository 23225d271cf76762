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

    parser.add_argument(
        "--why-costs",
        metavar="SHARE",
        help="let students see what a check did before the exercise has passed (lab check --why ID --pay), for "
        "this share of its points, such as 0.25; 0: no longer (default: as this course has it, at first not)",
    )


def run(args: argparse.Namespace) -> int:
    from lab.course.books import LAB, LAB_TWO, share_of
    from lab.course.build import build, strangers
    from lab.course.people.weights import share_typed

    folder = args.folder.expanduser()
    why_costs = None if args.why_costs is None else share_typed(args.why_costs)
    built = build(folder, keep_mine=args.keep_mine, why_costs=why_costs)
    changed = f"{len(built.written)} files written" + f", {len(built.gone)} taken out" * bool(built.gone)
    print(f"{folder}: {changed}" if built.written or built.gone else f"{folder} is up to date")
    for path in built.kept:
        print(f"  {path} is as you have changed it")
    for path in built.saved:
        print(f"  what was replaced lies in {path}: put your changes, if there are any, into the new one")
    for name in strangers(folder):
        print(f"  {name} is not the lab's; nbgrader will release it too")
    if share := share_of(folder):
        print(f"Asking why before an exercise has passed takes {share:g} of its points; --why-costs 0 ends that")
    print(f"Model answers, for you only: {folder / LAB.page}")
    print("To release it to students:")
    print(f"  cd {folder}")
    print(f"  nbgrader generate_assignment {LAB.name} --force")
    print(f"  nbgrader release_assignment {LAB.name} --force")
    print(
        f"Part two, for those who want more: the same with {LAB_TWO.name}; model answers: {folder / LAB_TWO.page}"
    )
    return 0
