"""lab system: write down what measurements were made on, and the commands that make them again."""

import argparse
from pathlib import Path

HELP = (
    "write SYSTEM.md (this machine), requirements-lock.txt, and docs/reproduce.md (the command behind each figure)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), metavar="DIR", help="write them there (default: the current folder)"
    )
    parser.add_argument(
        "--commands-only",
        action="store_true",
        help="write docs/reproduce.md only, and ask nothing of this machine",
    )


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from lab.base.errors import UserError
    from lab.base.paths import checkout
    from lab.doctor.pages import lock, reproduce_page, system_page

    folder, root = args.dir.expanduser(), checkout()
    why_not = _why_no_commands(folder, root)
    if why_not and args.commands_only:
        raise UserError(why_not)
    pages = {}
    if root is not None and not why_not:
        pages[folder / "docs" / "reproduce.md"] = reproduce_page(root)
    if not args.commands_only:
        today = datetime.now(UTC).date().isoformat()
        pages |= {folder / "SYSTEM.md": system_page(today), folder / "requirements-lock.txt": lock(today)}
    for path, text in pages.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        print(f"{path} is written")
    if why_not:
        print(f"docs/reproduce.md is not: {why_not}")
    return 0


def _why_no_commands(folder: Path, root: Path | None) -> str:
    """Why docs/reproduce.md has no place there; "" where it has."""
    from lab.syllabus.paths import holds_modules, is_labs_own

    if root is None:
        return "the commands are in a clone of the lab's repository only, and this lab runs from elsewhere"
    for code in (folder, folder / "exercises"):
        if holds_modules(code) and not is_labs_own(code):
            return f"the commands are the repository's, and {folder.absolute()} is a student's folder"
    return ""
