"""What the lab remembers in .lab/ of a student's folder: small JSON files, caches and never the truth."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def state_file(folder: Path, name: str) -> Path:
    """Where the file `name` of a student's folder is, if it is there."""
    return folder / ".lab" / name


def read_state(folder: Path, name: str) -> Any:
    """What the file holds; None when it is not there, cannot be read or holds garbage."""
    file = state_file(folder, name)
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None  # a pipe would never end
    except (OSError, ValueError, RecursionError):
        return None


def write_state(folder: Path, name: str, content: Any) -> bool:
    """Replace the file at once. Tells whether that was possible: a folder may be read-only, or the disk full."""
    file = state_file(folder, name)
    try:
        file.parent.mkdir(exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}.", suffix=".tmp")
    except OSError:
        return False
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream, indent=1, sort_keys=True)
        os.replace(unfinished, file)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        if not isinstance(error, OSError):
            raise
        return False
    return True
