"""Where things are: the lab's own files, and the folder that holds a student's seven modules."""

from pathlib import Path

import lab

PACKAGE = Path(lab.__file__).resolve().parent


def checkout() -> Path | None:
    """The root of the repository the lab runs from; None when it was installed from a wheel."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "solutions").is_dir() else None


def student_sources() -> Path:
    """The folder with what a student's package is made of: exercises/, run.sh, ...

    A wheel carries these files inside the package, without solutions/.
    """
    return checkout() or PACKAGE / "student_package"
