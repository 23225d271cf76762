"""The folders of sharded checkpoints: complete or not there, named by small files, and looked through before use.

    checkpoints/latest.json, best.json, epoch_003.json  which folder it is: {"format": 1, "folder": "sharded-..."}
    checkpoints/sharded-epoch2-1f9c/                    of all ranks, as torch.distributed.checkpoint has them
        run.pth                                         what is not sharded, as in a checkpoint of one file
        files.json                                      size and CRC-32 of each file; written last

A folder without files.json is one that nobody has finished. One that no file names any more is removed.
"""

import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

from lab.base.errors import UserError
from lab.base.files import atomic_write, sync_folder

FORMAT = 1
PREFIX = "sharded-"
RUN, FILES = "run.pth", "files.json"
POINTER = ".json"  # in the place of .pth

Sums = dict[str, list[int]]  # name of a file -> size in bytes, CRC-32


def pointer(path: Path) -> Path:
    """latest.json for latest.pth."""
    return path.with_suffix(POINTER)


def finish(folder: Path, sums: Sums) -> None:
    """Make sure that all files of all ranks are here, and say so in the folder. Rank 0's part.

    Raises OSError: one of them is not, as where the nodes share no folder; or this could not be written.
    """
    for name, (size, _) in sums.items():
        if (folder / name).stat().st_size != size:
            raise OSError(f"{name} was not written whole")
    _write(folder / FILES, {"format": FORMAT, "files": sums})


def point(path: Path, folder: Path) -> None:
    """Let latest.json, or another such file, mean this folder from now on; and latest.pth no other one."""
    _write(pointer(path), {"format": FORMAT, "folder": folder.name})
    path.unlink(missing_ok=True)  # of an earlier part of the run that wrote single files


def unpoint(path: Path) -> None:
    """latest.pth was written: what latest.json says is of an earlier part of the run."""
    pointer(path).unlink(missing_ok=True)


def clean(checkpoints: Path) -> None:
    """Remove the folders that no file names: older ones, and those that a killed run has left.

    Where one of those files cannot be read, nobody knows which: then nothing is removed.
    """
    try:
        named = {_named(path).name for path in checkpoints.glob(f"*{POINTER}")}
    except UserError:
        return
    for folder in checkpoints.glob(f"{PREFIX}*"):
        if folder.name not in named:
            shutil.rmtree(folder)


def is_folder(path: Path) -> bool:
    """Whether it is the folder of a sharded checkpoint, finished or not."""
    return path.is_dir() and (path.name.startswith(PREFIX) or (path / FILES).exists())


def found(path: Path) -> Path:
    """The folder of a sharded checkpoint, where `path` is one's pointer, or a file in it. Else `path` itself."""
    if path.suffix == POINTER and path.name != FILES:
        return _named(path)
    return path.parent if path.name in (RUN, FILES) and is_folder(path.parent) else path


def newest(path: Path) -> Path | None:
    """What latest.pth means in its folder, or best.pth: the file, or the folder that latest.json names.

    A run may have gone on in the other format, and be killed before it removed the earlier one: the later counts.
    """
    here = [one for one in (path, pointer(path)) if one.exists()]
    return found(max(here, key=lambda one: one.stat().st_mtime_ns)) if here else None


def check(folder: Path, part: int, parts: int) -> str:
    """What is wrong with every parts-th of its files from the part-th on, in a sentence; empty if nothing is.

    Ranks share the work, and hand the sentence on.
    """
    try:
        sums = contents(folder)
        for name in sorted(sums)[part::parts]:
            _check_file(folder, name, *sums[name])
    except UserError as error:
        return str(error)
    return ""


def sums_of(path: Path) -> list[int]:
    """Size and CRC-32 of a file. Raises OSError where it cannot be read."""
    size = crc = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return [size, crc]


def _check_file(folder: Path, name: str, size: int, crc: int) -> None:
    path = folder / name
    try:
        found_size = path.stat().st_size
        if found_size != size:
            raise UserError(
                f"{path} is truncated, or of another checkpoint: it has {found_size:,} bytes, not {size:,}; "
                "resume from another checkpoint"
            )
        found_crc = sums_of(path)[1]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): resume from another checkpoint") from error
    if found_crc != crc:
        raise UserError(
            f"{path} is damaged, or of another checkpoint: its checksum is another; resume from another checkpoint"
        )


def contents(folder: Path) -> Sums:
    """Its files. Raises UserError where it was not finished, or its files.json is damaged."""
    record = _read(folder / FILES, f"{folder} is a checkpoint that was not finished, or has lost its {FILES}")
    sums = record.get("files")
    if not isinstance(sums, dict) or RUN not in sums or any(Path(name).name != name for name in sums):
        raise UserError(f"{folder / FILES} is damaged: resume from another checkpoint")
    return sums


def _named(path: Path) -> Path:
    name = _read(path, f"{path} cannot be read").get("folder")
    if not isinstance(name, str) or not re.fullmatch(rf"{PREFIX}[\w-]+", name):
        raise UserError(f"{path} names no checkpoint: resume from another one")
    return path.with_name(name)


def _read(path: Path, otherwise: str) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{otherwise}: resume from another checkpoint") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): resume from another checkpoint") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UserError(f"{path} is not of this program, or of another version, which has format {FORMAT} here")
    return record


def _write(path: Path, record: dict[str, Any]) -> None:
    with atomic_write(path, alone=True) as file:
        file.write((json.dumps(record) + "\n").encode())
    sync_folder(path.parent)
