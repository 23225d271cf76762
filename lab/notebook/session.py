"""The notebook's own process: where the student's modules are, and what is loaded before it is needed."""

import importlib
import os
import threading
from pathlib import Path

from lab.ranks.server import server
from lab.syllabus.paths import find_code
from lab.syllabus.syllabus import ALL_MODULES

HERE = Path.cwd()  # the notebook's folder, as long as nothing has changed it: a kernel starts there

_warming: list[threading.Thread] = []


def graded_elsewhere() -> bool:
    """Whether a grader runs this notebook: it runs the modules' checks itself, outside of the kernel."""
    return bool(os.environ.get("LAB_GRADING"))


def judged_by_nbgrader() -> bool:
    """Whether nbgrader runs this notebook, to validate or to grade it. It knows a failed cell by its error."""
    return bool(os.environ.get("NBGRADER_EXECUTION"))


def code() -> Path:
    """The folder of the student's modules: in the notebook's folder, or beside or above it.

    Raises:
        UsageError: there is none.
    """
    return find_code(None, HERE)


def warm_up() -> None:
    """Load in the background what checks need, once in this process."""
    if _warming or graded_elsewhere():
        return
    thread = threading.Thread(target=_load, name="lab-warm-up", daemon=True)
    _warming.append(thread)
    thread.start()


def warm() -> None:
    """Wait until warm_up() has done its work: two threads must not import PyTorch at a time."""
    warm_up()
    for thread in _warming:
        thread.join()


def _load() -> None:
    try:
        server()  # returns at once; its process loads PyTorch while this one does
        for module in ALL_MODULES:
            importlib.import_module(f"lab.checks.{module}.checks")
    except Exception:  # noqa: BLE001 - the check that needs it will fail in the same way, and say so to the student
        return
