"""lab cluster: a practice Slurm cluster on this machine, for the time that a shell or a command runs on it."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from lab.base.paths import PACKAGE

HELP = "a Slurm cluster of two nodes on this machine, to practise on (Linux, root)"
SCRIPT = PACKAGE / "slurm" / "cluster.sh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="what to run on its login node, instead of a shell; the cluster ends with it",
    )


def run(args: argparse.Namespace) -> NoReturn:
    # The jobs find their Python by PATH, as in a shell with an active environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    os.execvpe("bash", ["bash", str(SCRIPT), "run", *words], os.environ | {"PATH": path})
