"""Submissions of every kind, made from the released assignment, and the marks each must get.

A kind is a function that changes a folder laid out as nbgrader's release: notebooks at the top, exercises/ below.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answers.all_answers import WRONG

from lab.course.books import released_books
from lab.syllabus.syllabus import MODULES, syllabus

ROOT = Path(__file__).resolve().parents[2]
BOOKS = tuple(released_books())  # of the assignment lab

# What the exercises of each module are worth.
POINTS = {name: {e.id: float(e.points) for e in syllabus().exercises if e.module == name} for name in MODULES}
DDP = POINTS["ddp_utils"]
ALL = {exercise: points for module in POINTS.values() for exercise, points in module.items()}

KINDS: dict[str, Callable[[Path], None]] = {}
MARKS: dict[str, dict[str, float]] = {}  # kind -> exercise -> points; what is not there is 0
ANSWERS: dict[str, dict[str, str]] = {}  # kind -> grade id -> what must come up for marking; nothing else may


def kind(
    marks: dict[str, float], answers: dict[str, str] | None = None
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        name = function.__name__.rstrip("_")
        KINDS[name], MARKS[name], ANSWERS[name] = function, marks, answers or {}
        return function

    return register


def expected(name: str) -> dict[str, float]:
    """Exercise -> points, for all of them."""
    return {exercise: MARKS[name].get(exercise, 0.0) for exercise in syllabus().ids}


def released(folder: Path) -> Path:
    """The student's package, laid out as a release."""
    shutil.copytree(ROOT / "exercises", folder / "exercises", ignore=shutil.ignore_patterns("__pycache__"))
    for book in BOOKS:
        shutil.copyfile(ROOT / "notebooks" / book, folder / book)
    return folder


def solve(folder: Path, *modules: str) -> None:
    """Put the reference's modules in; all of them if none is named."""
    for name in modules or MODULES:
        shutil.copyfile(ROOT / "solutions" / f"{name}.py", folder / "exercises" / f"{name}.py")


def write(folder: Path, name: str, text: str) -> None:
    (folder / "exercises" / name).write_text(text)


def read_book(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def write_book(folder: Path, name: str, notebook: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(notebook))


def find(notebook: dict[str, Any], grade_id: str) -> int:
    for number, cell in enumerate(notebook["cells"]):
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == grade_id:
            return number
    raise KeyError(grade_id)


def say(folder: Path, book: str, grade_id: str, text: str) -> None:
    notebook = read_book(folder, book)
    notebook["cells"][find(notebook, grade_id)]["source"] = text
    write_book(folder, book, notebook)


def code_cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": "mine",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def grade_ids(book: str) -> list[str]:
    found = [cell["metadata"].get("nbgrader", {}) for cell in read_book(ROOT / "notebooks", book)["cells"]]
    return [cell["grade_id"] for cell in found if "grade_id" in cell]


EVERY_ANSWER = {
    name: f"because of {name}" for book in BOOKS for name in grade_ids(book) if name.startswith("answer-")
}


@kind(ALL, EVERY_ANSWER)
def perfect(folder: Path) -> None:
    solve(folder)
    for book in BOOKS:
        for name in grade_ids(book):
            if name in EVERY_ANSWER:
                say(folder, book, name, EVERY_ANSWER[name])


@kind(POINTS["model"] | POINTS["distributed_utils"] | POINTS["data"], {"answer-why-shape": "The batch differs."})
def half(folder: Path) -> None:
    solve(folder, "model", "distributed_utils", "data")
    say(folder, "1_model.ipynb", "answer-why-shape", "The batch differs.")


@kind({})
def untouched(folder: Path) -> None:
    pass


def install(folder: Path, exercise: str, diagnosis: str) -> None:
    """The bank's first wrong answer with this diagnosis, in place of the regions of the reference."""
    answer = next(one for one in WRONG if (one.exercise, one.diagnosis) == (exercise, diagnosis))
    (folder / "bank").mkdir()
    code = answer.install(folder / "bank")
    file = f"{syllabus()[exercise].module}.py"
    shutil.copyfile(code / file, folder / "exercises" / file)
    shutil.rmtree(folder / "bank")


# What is right of an exercise is paid, part by part. 6.3 calls what 6.1 and 6.2 define.
@kind(ALL | {"3.2": 7.0, "4.2": 8.0, "6.1": 6.0})
def mistakes(folder: Path) -> None:
    solve(folder)
    install(folder, "3.2", "seed-ignored")
    install(folder, "4.2", "gradients-summed-in-bf16")
    install(folder, "6.1", "no-set-epoch")


@kind(DDP)
def hang(folder: Path) -> None:
    solve(folder, "ddp_utils")
    # It sleeps, as the tests beside it need the cores; the class of test_grade.py has one that spins.
    write(folder, "data.py", "import time\n\nwhile True:\n    time.sleep(1)\n")


@kind(POINTS["data"])
def crash(folder: Path) -> None:
    solve(folder, "data", "model")
    text = (folder / "exercises" / "model.py").read_text()
    write(folder, "model.py", text.replace("def forward(self, x", "def forward(self, x, os=__import__('os')", 1)
          .replace("assert", "os.abort()\n        assert", 1))  # fmt: skip
    write(folder, "ddp_utils.py", "import os\nos._exit(0)\n")


@kind(DDP)
def attack(folder: Path) -> None:
    solve(folder, "ddp_utils")
    forge = "import gc, os, signal, socket, sys\n"
    forge += "try:\n    from lab.ranks import wire\n"
    forge += "    for sock in [one for one in gc.get_objects() if isinstance(one, socket.socket)]:\n"
    forge += "        try:\n            sock.sendall(wire.frame(b'R', wire.encode({'ok': True})))\n"
    forge += "        except OSError:\n            pass\nexcept Exception:\n    pass\n"
    write(folder, "model.py", forge + "class CNN: pass\ndef build_model(*a, **k): os._exit(0)\n")
    write(folder, "train.py", forge + "os.kill(os.getppid(), signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\n")
    steal = "import glob, os\n"
    steal += (
        "for name in glob.glob('/**/gradebook.db', recursive=True) + glob.glob('/**/solutions', recursive=True):\n"
    )
    steal += "    raise SystemExit('FOUND ' + name)\n"
    write(folder, "data.py", steal + "raise SystemExit(0)\n")
    for name in ("json.py", "torch.py", "lab.py", "sitecustomize.py"):
        write(folder, name, "raise SystemExit('shadowed')\n")
        (folder / name).write_text("raise SystemExit('shadowed')\n")
    os.symlink("/etc/passwd", folder / "exercises" / "fsdp_utils.pyx")


@kind(
    DDP,
    {
        "answer-why-local-rank": "Devices are counted on each node.",
        "answer-srun-or-torchrun": "It depends.",
        "answer-sync-after-download": "Half a file.",
    },
)
def cells(folder: Path) -> None:
    """Duplicated, deleted and retyped cells; check cells too."""
    solve(folder, "ddp_utils")
    say(folder, "2_distributed_setup.ipynb", "answer-why-local-rank", "Devices are counted on each node.")
    notebook = read_book(folder, "2_distributed_setup.ipynb")
    at = find(notebook, "answer-why-local-rank")
    notebook["cells"].insert(0, dict(notebook["cells"][at], id="copied"))
    at = find(notebook, "answer-srun-or-torchrun")
    notebook["cells"][at] = {**code_cell("It depends."), "metadata": notebook["cells"][at]["metadata"]}
    del notebook["cells"][find(notebook, "check-2-1")]
    notebook["cells"].append(notebook["cells"][find(notebook, "check-2-2")])
    write_book(folder, "2_distributed_setup.ipynb", notebook)
    notebook = read_book(folder, "3_data.ipynb")
    del notebook["cells"][find(notebook, "answer-no-sampler")]
    at = find(notebook, "answer-sync-after-download")
    notebook["cells"][at] |= {"metadata": {}, "id": "answer-sync-after-download", "source": ["Half ", "a file."]}
    at = find(notebook, "check-3-2")
    notebook["cells"][at] |= {"cell_type": "markdown", "source": "passed"}
    write_book(folder, "3_data.ipynb", notebook)


@kind(DDP, {"answer-why-shape": "Any batch."})
def renamed(folder: Path) -> None:
    """A renamed, a missing and a damaged notebook; modules missing."""
    solve(folder, "ddp_utils")
    say(folder, "1_model.ipynb", "answer-why-shape", "Any batch.")
    (folder / "1_model.ipynb").rename(folder / "Model (final) 2.ipynb")
    (folder / "2_distributed_setup.ipynb").unlink()
    (folder / "3_data.ipynb").write_text((folder / "3_data.ipynb").read_text()[:-100])
    (folder / "4_wrapping.ipynb").write_bytes(b"\xff\xfe\x00[[[")
    for name in ("train", "main", "data"):
        (folder / "exercises" / f"{name}.py").unlink()


@kind(DDP, {"answer-why-shape": "\ud800 <script>alert(1)</script> =1+1".replace("\ud800", "\\ud800")})
def kernel(folder: Path) -> None:
    """Cells that kill the kernel, replace the checker, and give themselves points."""
    solve(folder, "ddp_utils")
    say(folder, "1_model.ipynb", "answer-why-shape", "\ud800 <script>alert(1)</script> =1+1")
    for book in BOOKS:
        notebook = read_book(folder, book)
        for cell in notebook["cells"]:
            nbgrader = cell["metadata"].get("nbgrader", {})
            if nbgrader.get("grade_id", "").startswith("check-"):
                cell["source"] = "1000"
                cell["outputs"] = [
                    {
                        "output_type": "execute_result",
                        "data": {"text/plain": "8"},
                        "metadata": {},
                        "execution_count": 1,
                    }
                ]
                nbgrader |= {"points": 1000, "locked": False, "solution": True}
        notebook["cells"].insert(0, code_cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
        notebook["cells"].append(code_cell("check = lambda *a: None\nwhile True: pass"))
        write_book(folder, book, notebook)


@kind(DDP)
def noise(folder: Path) -> None:
    """Words on stderr, giant outputs of modules and of cells."""
    solve(folder, "ddp_utils")
    text = (folder / "exercises" / "ddp_utils.py").read_text()
    write(
        folder,
        "ddp_utils.py",
        text + "import os, sys\nprint('warning', file=sys.stderr)\nos.write(1, b'x' * 3_000_000)\n",
    )
    write(folder, "data.py", "import sys\nfor _ in range(20): print('y' * 100_000, file=sys.stderr)\n")
    notebook = read_book(folder, "4_wrapping.ipynb")
    giant = {"output_type": "stream", "name": "stderr", "text": "z" * 3_000_000}
    notebook["cells"][find(notebook, "check-4-0")]["outputs"] = [giant]
    write_book(folder, "4_wrapping.ipynb", notebook)


@kind(DDP, {"answer-why-shape": "Line one.\nLine two."})
def crlf(folder: Path) -> None:
    """Files as Windows writes them, and one that is no UTF-8."""
    solve(folder, "ddp_utils", "model")
    path = folder / "exercises" / "ddp_utils.py"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    write(folder, "model.py", "")
    (folder / "exercises" / "model.py").write_bytes(
        b"NAME = 'caf\xe9'\n" + (ROOT / "solutions" / "model.py").read_bytes()
    )
    say(folder, "1_model.ipynb", "answer-why-shape", "Line one.\r\nLine two.")
    book = folder / "1_model.ipynb"
    book.write_bytes(b"\xef\xbb\xbf" + book.read_bytes().replace(b"\n", b"\r\n"))


@kind(DDP)
def modules_only(folder: Path) -> None:
    """Without any notebook, which nbgrader passes over."""
    solve(folder, "ddp_utils")
    for book in BOOKS:
        (folder / book).unlink()


IN_CI = tuple(KINDS)
QUESTIONS = released_books()
