"""The folder that holds a student's seven modules, and whose it is."""

from pathlib import Path

from lab.base.errors import UsageError
from lab.base.paths import student_sources
from lab.syllabus.syllabus import MODULES


def holds_modules(folder: Path) -> bool:
    """Whether this is a folder of student modules. A few may be missing: that is the check's to say."""
    return sum((folder / f"{name}.py").is_file() for name in MODULES) > len(MODULES) // 2


def find_code(name: str | None, cwd: Path | None = None) -> Path:
    """The folder of modules to check.

    Args:
        name: --code: a folder of modules, a student's package with exercises/ in it, or the word
            "solutions" or "exercises" for the lab's own. None: look in the current folder and above.

    Raises:
        UsageError: there is none, or its name is no text.
    """
    folder = _find_code(name, cwd)
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            f"the name of {folder} has characters that this terminal's language setting does not know: "
            "rename the folder, or try export LC_ALL=C.UTF-8"
        ) from None
    return folder


def _find_code(name: str | None, cwd: Path | None) -> Path:
    try:
        cwd = (cwd or Path.cwd()).resolve()
    except FileNotFoundError:
        raise UsageError("the current folder has been deleted: go to another one (cd)") from None
    if name is not None:
        named = (cwd / Path(name).expanduser()).resolve()
        candidates = [named, named / "exercises"]
        if name.rstrip("/") in ("solutions", "exercises"):
            candidates.append(student_sources() / name.rstrip("/"))
        for folder in candidates:
            if holds_modules(folder):
                return folder
        why = "is no folder" if not named.is_dir() else f"does not hold {MODULES[0]}.py, {MODULES[2]}.py and so on"
        raise UsageError(f"--code {name}: {why}; name your exercises folder, or the folder it is in")
    for folder in [cwd / "exercises", cwd, *(parent / "exercises" for parent in cwd.parents)]:
        if holds_modules(folder):
            return folder
    raise UsageError(
        "no exercises here: go to the folder that `lab start` made (or make one: lab start my-lab), "
        "or name it with --code DIR"
    )


def student_folder(code: Path) -> Path:
    """The student's package that a folder of modules belongs to."""
    return code.parent if code.name == "exercises" else code


def is_labs_own(code: Path) -> bool:
    """Whether these modules are the lab's own, tracked in its repository, and not somebody's work."""
    sources = student_sources()
    return code.resolve() in (sources / "exercises", sources / "solutions")
