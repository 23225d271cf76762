"""lab notebooks: write notebooks/ from notebooks/source/. For those who change the lab, in its repository."""

import argparse

from lab.base.errors import UserError
from lab.base.paths import checkout
from lab.syllabus.generated import drift, write
from lab.syllabus.given_before import FILE, add_missing
from lab.syllabus.notebooks import generate, points_of
from lab.syllabus.syllabus import syllabus

HELP = "write the notebooks from notebooks/source/ (in the lab's repository)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 if there is a difference"
    )


def run(args: argparse.Namespace) -> int:
    root = checkout()
    if root is None or not (root / "notebooks" / "source").is_dir():
        raise UserError("`lab notebooks` works in a clone of the lab's repository only: there are no sources here")
    texts = generate(root / "notebooks", points_of(syllabus()))
    if args.check:
        names = drift(texts, root / "notebooks", ".ipynb")
        for name in names:
            print(f"notebooks/{name} is not what notebooks/source/ gives: run `lab notebooks`")
        return 1 if names else 0
    names = write(texts, root / "notebooks", ".ipynb")
    print(f"notebooks/: {', '.join(names)} written" if names else "notebooks/ is up to date")
    if (root / ".git").exists() and (added := add_missing(root)):
        print(f"{FILE.relative_to(root)}: {added} lines that students were given before, and are given no more")
    return 0
