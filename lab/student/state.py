"""What the lab remembers in .lab/ of a student's folder: small JSON files, caches and never the truth."""

import json
from pathlib import Path
from typing import Any

from lab.base.files import write_whole


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
        write_whole(file, json.dumps(content, indent=1, sort_keys=True), mode=0o600)
    except OSError:
        return False
    return True
