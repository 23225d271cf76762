"""lab jupyter: open JupyterLab in a student's folder, on the first notebook."""

import argparse
import os
import sys
from pathlib import Path

from lab.base.errors import UserError
from lab.student.jupyter import profile
from lab.syllabus.package import start
from lab.syllabus.paths import find_code, is_labs_own, student_folder

HELP = "open the guided notebooks in JupyterLab"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        type=Path,
        help="your folder, made if there is none (default: found from here)",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--port", type=int, metavar="N", help="the server's port (default: the first free from 8888)"
    )


def run(args: argparse.Namespace) -> int:
    """Becomes JupyterLab, which ends with Ctrl-C."""
    folder = _folder(args.folder)
    command, env = profile(folder)
    if args.no_browser:
        command.append("--no-browser")
    if args.port is not None:
        command.append(f"--ServerApp.port={args.port}")
    print(f"JupyterLab in {folder}; Ctrl-C ends it.", flush=True)
    os.chdir(folder)
    sys.stdout.flush()
    os.execve(command[0], command, env)


def _folder(named: Path | None) -> Path:
    if named is None:
        code = find_code(None)
        if is_labs_own(code):
            raise UserError("this is the lab itself; name a folder to work in, new or not: lab jupyter work")
        folder = student_folder(code)
    else:
        folder = named.expanduser().resolve()
        if not folder.exists():
            start(folder)
            print(f"Your lab is in {folder}.")
        elif is_labs_own(folder / "exercises"):
            raise UserError(f"{named} is the lab itself; name a folder to work in, such as work")
    return folder
