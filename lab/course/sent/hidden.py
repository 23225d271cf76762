"""Work in folders that are passed over, such as results/ or .x/: a person is told of what is nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath

from lab.course.sent.choice import MAX_COPIES, Copy, as_module, begun
from lab.course.sent.contents import few

KEPT = {".lab", ".ipynb_checkpoints"}  # where the lab and JupyterLab keep what was there before
NEARLY = 2  # from here on a name is only perhaps a module's: see as_module()
CHECKPOINT = re.compile(r"-checkpoint(\.ipynb)$")  # how JupyterLab calls what was there before
CODE = (".py", ".ipynb")


def hidden(
    passed: Sequence[PurePosixPath],
    graded: Mapping[str, Copy],
    files: Collection[str],
    read: Callable[[PurePosixPath], bytes | int | None],
) -> tuple[list[str], list[str]]:
    """What a person should look at, and what is only to be known, of all but notebooks.

    Args:
        passed: the files that are called like work.
        graded: module -> the file that is graded as it.
        files: the modules that are wanted.
        read: the content of a file, or its size where that is too large; None where it cannot be read.
    """
    alone = [name for name in passed if name.suffix not in CODE and not is_kept(name)]
    more = []
    called = [
        (name, one[0]) for name in sorted(passed) if (one := as_module(name.name, files)) and one[1] < NEARLY
    ]
    for name, file in called[:MAX_COPIES]:
        content, taken = read(name), graded.get(file)
        if not begun(file, content) or (taken is not None and taken.content == content):
            continue
        if taken is None or not taken.begun:
            alone.append(name)
        elif not is_kept(name):
            more.append(name)
    said = "in folders that are passed over, and not used: "
    return [f"work {said}{few(map(str, alone))}"] * bool(alone), [f"{said}{few(map(str, more))}"] * bool(more)


def book_of(place: PurePosixPath) -> str:
    """The name of the notebook that a file is a copy of."""
    return CHECKPOINT.sub(r"\1", place.name)


def is_kept(name: PurePosixPath) -> bool:
    """Whether a program may have put it there."""
    return bool(KEPT & set(name.parts))
