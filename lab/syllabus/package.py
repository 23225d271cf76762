"""The student's package: `lab start` writes it, `lab reset` brings single exercises back to the stub."""

import ast
import os
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.paths import student_sources
from lab.base.source import source_lines
from lab.syllabus.paths import is_labs_own, student_folder
from lab.syllabus.syllabus import PART_TWO, Exercise, syllabus

# What students get, and nothing else: never solutions/. pyproject.toml puts the same list into the wheel.
CONTENTS = (
    "exercises",
    "run.sh",
    "edf.toml",
    "run_benchmarks.py",
    "collect_results.py",
    "plot_results.py",
    "plot_results.sh",
    "slurm",
    "env",
    "notebooks",
    "docs/templates",
    "docs/cluster.md",
    "docs/failures.md",
    "docs/glossary.md",
    "docs/other-hands.md",
    "docs/scaling-plot.png",
)
NOT_FOR_STUDENTS = ("__pycache__", ".ipynb_checkpoints", "source", "results")

README = Path(__file__).with_name("student_readme.md")


def package_files() -> dict[PurePosixPath, Path]:
    """Path in the package -> the file it is a copy of, for everything in CONTENTS that exists."""
    root = student_sources()
    files = {PurePosixPath("README.md"): README}
    for name in CONTENTS:
        for path in _files(root / name):
            files[PurePosixPath(path.relative_to(root).as_posix())] = path
    if not any(path.parts[0] == "exercises" for path in files):
        raise UserError(f"{root / 'exercises'} is missing: write it with `lab stubs`, or install the lab again")
    return files


def in_part_two(path: PurePosixPath) -> bool:
    """Whether a file of the package is of part two: its module, or its section's notebook."""
    sections = {str(exercise.section) for exercise in syllabus().optional}
    tops = {name.partition(".")[0] for name in PART_TWO}  # fast.py, and all of from_scratch/
    module = path.parts[0] == "exercises" and PurePosixPath(*path.parts[1:2]).stem in tops
    return module or (path.suffix == ".ipynb" and path.stem.split("_")[0] in sections)


def start(folder: Path, *, force: bool = False) -> Path | None:
    """Write the student's package to `folder`.

    Args:
        force: write into a folder that is not empty; what would be overwritten goes to a backup first.

    Returns:
        The backup folder, if there was anything to keep.

    Raises:
        UserError: the folder is not empty, is a file, is the lab's own, or cannot be written.
    """
    files = package_files()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder that is not there yet")
    if folder.resolve() == student_sources():
        raise UserError(f"{folder} is the lab itself; name a new folder, such as my-lab")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UserError(
            f"{folder} is not empty and was left as it is; name another folder, "
            "or use --force, which keeps a backup of what it overwrites"
        )
    try:
        changed = [p for p, source in files.items() if _differs(folder / p, source)]
        backup = _new_backup(folder) if changed else None
        for path, source in files.items():
            target = folder / path
            if backup and path in changed:
                (backup / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(target, backup / path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                continue  # the same text: keep it as it is
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
            target.chmod(target.stat().st_mode | 0o200)  # an installed file may be read-only; a student's is not
    except OSError as error:
        raise UserError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return backup


def reset_file(code: Path, name: str) -> Path | None:
    """Bring a whole module back to the stub. Returns the backup of the old one, if there was one.

    Raises:
        UserError: there is no such module, or it is the lab's own.
    """
    stub = _stub(code, name)
    return _write(code, name, stub)


def reset_exercise(code: Path, exercise: Exercise) -> tuple[Path | None, list[str]]:
    """Bring the functions and classes with the exercise's TODOs back to the stub; the rest stays.

    Returns:
        The backup of the old file, and the names of what was reset.

    Raises:
        UserError: the file is not there or does not parse, or is the lab's own.
    """
    stub = _stub(code, exercise.file)
    whole = f"`lab reset --file {exercise.file}` brings the whole file back and keeps a backup"
    file = code / exercise.file
    try:
        text = file.read_text(encoding="utf-8-sig")
        mine = definitions(text)
    except FileNotFoundError as error:
        raise UserError(f"{exercise.file} is not there; {whole}") from error
    except (SyntaxError, ValueError) as error:
        raise UserError(
            f"{exercise.file} does not parse, so {exercise.id} cannot be found in it; {whole}"
        ) from error
    lines = source_lines(text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    pristine = source_lines(stub)
    wanted = {
        name: (begin, end)
        for name, (begin, end) in definitions(stub).items()
        if any(is_todo(line, exercise.id) for line in pristine[begin:end])
    }
    for name in sorted(wanted.keys() & mine.keys(), key=mine.__getitem__, reverse=True):
        lines[slice(*mine[name])] = pristine[
            slice(*wanted[name])
        ]  # from below, so that the lines above keep their place
    for name in wanted.keys() - mine.keys():
        lines += ["\n\n", *pristine[slice(*wanted[name])]]
    return _write(code, exercise.file, "".join(lines)), list(wanted)


def is_todo(line: str, exercise_id: str) -> bool:
    """Whether a line is the stub's NotImplementedError of one of the exercise's regions."""
    _, found, after = line.partition(f"Exercise {exercise_id}")
    return bool(found) and not after[:1].isdigit() and "is not done yet" in after


def definitions(text: str) -> dict[str, tuple[int, int]]:
    """Top-level function or class -> the slice of lines it takes, decorators included."""
    spans: dict[str, tuple[int, int]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            spans[node.name] = (first - 1, node.end_lineno or node.lineno)
    return spans


def _stub(code: Path, name: str) -> str:
    if is_labs_own(code):
        raise UserError(
            f"{code} is the lab's own and was left as it is; `lab start my-lab` makes a copy to work in"
        )
    exercises = student_sources() / "exercises"
    names = sorted(path.relative_to(exercises).as_posix() for path in exercises.rglob("*.py"))
    if name not in names:
        raise UserError(f"there is no {name} among the exercises; choose from {', '.join(names)}")
    return (exercises / name).read_text(encoding="utf-8")


def _write(code: Path, name: str, text: str) -> Path | None:
    """Replace a file at once, after a copy of it has gone to the backup folder."""
    file = code / name
    try:
        backup = None
        if file.exists():
            if file.read_bytes() == text.encode():
                return None
            backup = _new_backup(student_folder(code)) / name
            backup.parent.mkdir(exist_ok=True)
            shutil.copy2(file, backup)
        file.parent.mkdir(exist_ok=True)
        like = backup or student_sources() / "exercises" / name
        write_whole(file, text, mode=stat.S_IMODE(like.stat().st_mode))
    except OSError as error:
        raise UserError(f"cannot write {error.filename or file}: {error.strerror}") from error
    return backup


def _new_backup(folder: Path) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    parent = folder / ".lab"
    for suffix in ["", *(f"-{number}" for number in range(2, 1000))]:
        backup = parent / f"backup-{stamp}{suffix}"
        if not backup.exists():
            backup.mkdir(parents=True)
            return backup
    raise UserError(f"{parent} holds too many backups; remove some")


def _differs(target: Path, source: Path) -> bool:
    if not target.exists():
        return False
    return not target.is_file() or target.read_bytes() != source.read_bytes()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name not in NOT_FOR_STUDENTS and child.suffix != ".pyc":
                yield from _files(child)
