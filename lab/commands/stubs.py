"""lab stubs: write exercises/ from solutions/. For those who change the lab, in its repository."""

import argparse

from lab.base.errors import UserError
from lab.base.paths import checkout
from lab.syllabus.generated import drift, write
from lab.syllabus.stubs import generate
from lab.syllabus.syllabus import syllabus

HELP = "write exercises/ from solutions/ (in the lab's repository)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 if there is a difference"
    )


def run(args: argparse.Namespace) -> int:
    root = checkout()
    if root is None:
        raise UserError("`lab stubs` works in a clone of the lab's repository only: there are no solutions here")
    stubs = generate(root / "solutions", syllabus())
    if args.check:
        names = drift(stubs, root / "exercises", ".py")
        for name in names:
            print(f"exercises/{name} is not what solutions/ gives: run `lab stubs`")
        return 1 if names else 0
    names = write(stubs, root / "exercises", ".py")
    print(f"exercises/: {', '.join(names)} written" if names else "exercises/ is up to date")
    return 0
