"""Folders with generated files of one kind, exercises/*.py and notebooks/*.ipynb: what differs, and writing it."""

from collections.abc import Mapping
from pathlib import Path

from lab.base.files import write_whole


def drift(texts: Mapping[str, str], folder: Path, kind: str) -> list[str]:
    """Names of the files in `folder` that are not what `texts` says: changed, missing or left over.

    Args:
        texts: file name, below `folder` -> text.
        kind: the suffix of all that is generated here, such as ".py".
    """
    within = {folder, *((folder / name).parent for name in texts)}
    present = {path.relative_to(folder).as_posix() for one in within for path in one.glob(f"*{kind}")}
    changed = {
        name
        for name, text in texts.items()
        if name not in present or (folder / name).read_bytes() != text.encode()
    }
    return sorted(changed | (present - set(texts)))


def write(texts: Mapping[str, str], folder: Path, kind: str) -> list[str]:
    """Make the files in `folder` exactly what `texts` says. Returns the names of those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = drift(texts, folder, kind)
    for name in changed:
        if name in texts:
            (folder / name).parent.mkdir(exist_ok=True)
            write_whole(folder / name, texts[name])
        else:
            (folder / name).unlink()
    return changed
