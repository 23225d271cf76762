"""What dishonest students hand in, and the words that must name each in the table of the class.

Another attack is one more function, or one more line of hostile_code(); test_hostile_class.py grades them all.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from class_kinds import ROOT, say, write

from lab.course.notebooks import ANSWER

MB = 1 << 20


@dataclass(frozen=True)
class Hostile:
    """An attack.

    make  changes a release whose ddp_utils are solved, or puts a zip beside it in its place
    said  must stand in the student's row
    most  points it may get at most: those of what is honest in it
    """

    make: Callable[[Path], None]
    said: str
    most: float


HOSTILE: dict[str, Hostile] = {}
SOLVED = 14.0  # points for ddp_utils, which every one has


def hostile(said: str, most: float = SOLVED) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        HOSTILE[function.__name__.replace("_", "-")] = Hostile(function, said, most)
        return function

    return register


def hostile_code(name: str, module: str, code: str, said: str, most: float = SOLVED) -> None:
    """An attack that is the code of one module."""
    HOSTILE[name] = Hostile(lambda folder: write(folder, f"{module}.py", code), said, most)


def zipped(folder: Path, more: dict[str, bytes]) -> None:
    """Put a zip in the folder's place, with these files too."""
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and str(path.relative_to(folder)) not in more:
                archive.write(path, path.relative_to(folder))
        for name, content in more.items():
            archive.writestr(name, content)
    shutil.rmtree(folder)


@hostile("exercises is a symbolic link", most=0)
def link_to_solutions(folder: Path) -> None:
    shutil.rmtree(folder / "exercises")
    (folder / "exercises").symlink_to(ROOT / "solutions")


@hostile("1_model.ipynb is a symbolic link")
def link_to_a_notebook(folder: Path) -> None:
    (folder / "1_model.ipynb").unlink()
    (folder / "1_model.ipynb").symlink_to(folder.parent / "honest-perfect-0" / "1_model.ipynb")


@hostile("is a link, which is not followed", most=0)
def link_to_another(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.parent / "honest-perfect-0")


@hostile("exercises/data.py is a pipe")
def pipe(folder: Path) -> None:
    (folder / "exercises" / "data.py").unlink()
    os.mkfifo(folder / "exercises" / "data.py")


@hostile("exercises/data.py is a socket")
def listener(folder: Path) -> None:
    (folder / "exercises" / "data.py").unlink()
    os.mknod(folder / "exercises" / "data.py", stat.S_IFSOCK | 0o600)


@hostile("exercises/link.py")
def link_in_a_zip(folder: Path) -> None:
    zipped(folder, {})
    link = zipfile.ZipInfo("exercises/link.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder.with_suffix(".zip"), "a") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("../../../exercises/data.py", "stolen")


@hostile("the rest was left out")
def zip_of_notebooks(folder: Path) -> None:
    book = b'{"cells": []}' + b" " * (20 * MB)
    zipped(folder, {f"{number}.ipynb": book for number in range(40)})


@hostile("is too large to be read")
def memory(folder: Path) -> None:
    zipped(folder, {"more.ipynb": b'{"cells": [' + b"[]," * (15 * MB) + b"[]]}"})


@hostile("left out in part")
def text_without_end(folder: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {"nbgrader": {"grade_id": f"{ANSWER}{n}"}}, "source": "y" * 29_000}
        for n in range(50)
    ]
    zipped(folder, {f"{number}.ipynb": json.dumps({"cells": cells}).encode() for number in range(20)})


@hostile("is no zip file that can be read", most=0)
def no_zip(folder: Path) -> None:
    zipped(folder, {})
    folder.with_suffix(".zip").write_bytes(b"PK\x05\x06" + b"\xff" * 18)


@hostile("a picture.svg is no PNG or JPEG picture")
def answers_that_run(folder: Path) -> None:
    say(
        folder,
        "1_model.ipynb",
        "answer-why-shape",
        "[x](javascript:alert(1)) ![](http://evil.example/x.png) =1+1;=2",
    )
    book = json.loads((folder / "1_model.ipynb").read_text())
    for cell in book["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "answer-why-shape":
            cell["attachments"] = {"a picture.svg": {"image/svg+xml": "PHN2Zy8+"}}
    (folder / "1_model.ipynb").write_text(json.dumps(book))


BEYOND = "code that reaches beyond its exercises"
hostile_code("patched-checks", "model", "import sys\nsys.modules['lab.checks.model.judge'] = None\n", BEYOND)
hostile_code("forged-report", "data", "import gc, os\ngc.get_objects()\nos._exit(0)\n", BEYOND)
hostile_code("long-line", "data", f"x = '{'a' * 900_000}'\n", BEYOND)
hostile_code("threads", "data", "import threading, time\nfor _ in range(240):\n"
             "    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n", "")  # fmt: skip


if os.geteuid() == 0:

    @hostile("exercises/data.py is a hard link to another user's file")
    def hard_link(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, -1)
        (folder / "exercises" / "data.py").unlink()
        secret = folder.parent.parent / "secret.py"
        secret.write_text("SECRET = 1\n")
        os.link(secret, folder / "exercises" / "data.py")


hostile_code(
    "sets-a-check",
    "model",
    "import sys\nsys.modules['lab.checks.model.observe'].forward = print\nclass CNN: pass\n",
    "model.py:2 sys.modules",
)
hostile_code(
    "forges-an-error",
    "data",
    "import lab.ranks.wire as ours\n"
    "code = 'def load_once(*a, **k): raise OSError(1)\\ndef get_dataloaders(*a, **k): raise OSError(2)'\n"
    "exec(compile(code, ours.__file__, 'exec'))\n",
    "the report of 3.1, 3.3 could not be used",
)
hostile_code("one-long-line", "data", f"x = '{'[' * 900_000}'\n", "data.py was not read")
hostile_code("a-long-name", "train", f"import {'a.' * 400_000}a\n", "train.py was not read")
hostile_code(
    "threads-without-end",
    "model",
    "import gc, threading, time\n"
    "try:\n"
    "    while True: threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n"
    "except RuntimeError: pass\n",
    "model.py:1 import gc",
)
