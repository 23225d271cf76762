"""The nbgrader course: `lab course build` writes it from the student's package, always the same bytes.

    DIR/nbgrader_config.py            how nbgrader grades this lab
    DIR/source/lab/                   the assignment: eight notebooks beside exercises/, run.sh and the rest
    DIR/source/lab2/                  the same for part two, whose module and notebook are in this one alone
    DIR/instructor/marking_guide.md   model answers; outside of what nbgrader ever releases
    DIR/instructor/marking_guide_two.md   those of part two
    DIR/instructor/course.toml    what asking why costs, where it does (lab/course/books.py)
    DIR/instructor/written.json   what was written last, by digest: how an instructor's own changes are known

A release is the student's package: both come from package_files(). Only the notebooks lie one folder higher, since
nbgrader looks for them at the top of an assignment.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.paths import checkout, student_sources
from lab.course.books import ASSIGNMENTS, LAB, PLACES, RECORD, Assignment, share_files, share_of
from lab.course.config import config_text
from lab.course.guide import guide_text
from lab.syllabus.notebooks import build_notebook, points_of, sources, to_text
from lab.syllabus.package import in_part_two, package_files
from lab.syllabus.syllabus import syllabus

CONFIG = "nbgrader_config.py"
NOTEBOOKS = "notebooks"
WRITTEN = PurePosixPath("instructor", "written.json")
SAVED = PurePosixPath("instructor", "before-the-update")
LINK = re.compile(r"\[([^]\n]+)\]\((\w+\.ipynb)\)")


def course_files() -> dict[PurePosixPath, bytes]:
    """Path in the course directory -> content.

    Raises:
        UserError: not in a clone of the repository, which alone holds the notebooks' sources and the guide.
    """
    root = checkout()
    if root is None or not (root / NOTEBOOKS / "source").is_dir():
        raise UserError(
            "`lab course build` works in a clone of the lab's repository only: "
            "model answers are in nothing that is installed"
        )
    files: dict[PurePosixPath, bytes] = {}
    editable: dict[str, list[str]] = {}
    for one in ASSIGNMENTS.values():
        files |= _assignment_files(one, root / NOTEBOOKS / "source")
        editable[one.name] = sorted(f"exercises/{name}" for name in one.module_files)
    files[PurePosixPath(CONFIG)] = config_text(editable).encode()
    return files


def _assignment_files(assignment: Assignment, texts: Path) -> dict[PurePosixPath, bytes]:
    """What one assignment is made of, and its guide.

    Args:
        texts: the folder with the notebooks' sources and the guides.
    """
    home = PurePosixPath("source", assignment.name)
    files: dict[PurePosixPath, bytes] = {}
    for path, origin in package_files().items():
        if assignment is LAB and in_part_two(path):
            continue
        if path.parts[0] == NOTEBOOKS and path.suffix == ".ipynb":
            continue  # built below, with links that fit
        inner = PurePosixPath(*path.parts[1:]) if path.parts[0] == NOTEBOOKS else path
        files[home / inner] = origin.read_bytes()
    books = [source for source in sources(texts) if assignment.has(PurePosixPath(f"{source.stem}.ipynb"))]
    names = {f"{source.stem}.ipynb" for source in books}
    for source in books:
        notebook = build_notebook(source, points_of(syllabus()), beside_exercises=True)
        for cell in notebook.cells:  # a notebook of the other assignment is named only: it is not beside this one
            cell.source = LINK.sub(lambda link: link[0] if link[2] in names else link[1], cell.source)
        files[home / source.with_suffix(".ipynb").name] = to_text(notebook).encode()
    files[assignment.page] = guide_text(texts / assignment.guide, books).encode()
    return files


@dataclass(frozen=True)
class Built:
    """What became of the files of a course that was there: written anew, or left as the instructor has them.

    saved  copies of what was replaced in a course of an older lab, which has no list of what it had written
    gone   what the lab had written and is no longer of the course
    """

    written: list[PurePosixPath]
    kept: list[PurePosixPath]
    saved: list[PurePosixPath]
    gone: list[PurePosixPath]


def build(folder: Path, *, keep_mine: bool = False, why_costs: float | None = None) -> Built:
    """Write the course directory, or bring an older one up to date; what nbgrader made in it stays.

    So does what the instructor has changed, which is told by the digests of what the lab wrote last (WRITTEN).

    Args:
        keep_mine: also where the lab's own version is another now.
        why_costs: the share of its points that asking why costs before an exercise has passed; None: as before.

    Raises:
        UserError: the folder holds something else, or cannot be written; or the same files were changed by the
            instructor and in the lab. Nothing is written then.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder that is not there yet")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise UserError(f"{folder} is not empty and no course directory; name a new folder")
    if folder.resolve() == student_sources():
        raise UserError(f"{folder} is the lab itself; name a new folder, such as course")
    share = share_of(folder) if why_costs is None else why_costs
    files = course_files() | share_files(share)
    before = _written_before(folder)
    built = Built([], [], [], [])
    both = []
    for path, content in files.items():
        target = folder / path
        there = target.read_bytes() if target.is_file() else None
        if there == content:
            continue
        if there is None or before is None or path == RECORD or before.get(str(path)) == _digest(there):
            built.written.append(path)
        else:
            built.kept.append(path)
            both += [path] if before.get(str(path)) != _digest(content) else []
    for path in (path for path in PLACES if path not in files and (folder / path).is_file()):
        if path == RECORD or (before or {}).get(str(path)) == _digest((folder / path).read_bytes()):
            built.gone.append(path)
        else:
            built.kept.append(path)
            both.append(path)
    if both and not keep_mine:
        raise UserError(
            f"{folder}: {', '.join(map(str, both))}: changed by you, and in the lab; nothing was written. "
            "Move your version out of the course, build again, and put your changes into the new one; or leave "
            "yours as it is: --keep-mine"
        )
    try:
        for path in built.written:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if before is None and target.is_file():
                copy = SAVED / path
                (folder / copy).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, folder / copy)
                built.saved.append(copy)
            write_whole(target, files[path], alone=True)  # nbgrader would release what a kill left behind
        for path in built.gone:
            (folder / path).unlink()
        digests = {str(path): _digest(content) for path, content in sorted(files.items())}
        if digests != before:
            write_whole(folder / WRITTEN, json.dumps(digests, indent=1).encode(), alone=True)
        for path, origin in package_files().items():  # run.sh is a program
            for name in ASSIGNMENTS:
                target = folder / "source" / name / path
                if target.is_file():
                    shutil.copymode(origin, target)
                    target.chmod(target.stat().st_mode | 0o200)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return built


def _written_before(folder: Path) -> dict[str, str] | None:
    """Path -> digest of what the lab wrote last; None where nobody knows."""
    try:
        known = json.loads((folder / WRITTEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def strangers(folder: Path) -> list[str]:
    """Files of the assignments that the lab has not put there: nbgrader would release them too."""
    known = {str(path) for path in course_files() | share_files(share_of(folder))}
    homes = [folder / "source" / name for name in ASSIGNMENTS]
    there = (path for home in homes for path in sorted(home.rglob("*")) if path.is_file())
    return [str(path.relative_to(folder)) for path in there if path.relative_to(folder).as_posix() not in known]
