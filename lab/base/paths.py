"""Where the lab's own files are, and those that a student's package is made of."""

from pathlib import Path

import lab

PACKAGE = Path(lab.__file__).resolve().parent
ROOT = PACKAGE.parent  # the folder to start Python in, or to put on its path, so that it finds the lab


def checkout() -> Path | None:
    """The root of the repository the lab runs from; None when it was installed from a wheel."""
    return ROOT if (ROOT / "pyproject.toml").is_file() and (ROOT / "solutions").is_dir() else None


def module_file(name: str) -> str:
    """The file of a student's module, below the folder of them all: "data.py", or "from_scratch/ring.py"."""
    return f"{name.replace('.', '/')}.py"


def student_sources() -> Path:
    """The folder with what a student's package is made of: exercises/, run.sh, ...

    A wheel carries these files inside the package, without solutions/.
    """
    return checkout() or PACKAGE / "student_package"
