"""Checkpoint files: written whole or not at all, read without running anything in them. Rank 0's part."""

import lzma
import os
import pickle
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, cast

import torch

from lab.base.errors import UserError
from lab.base.files import atomic_write, replacing, sync_folder
from lab.runs.records.progress import position
from lab.training.checkpoints import shard_folder

FORMAT = 1
FOLDER = "checkpoints"  # in the run's folder
LATEST, BEST = "latest.pth", "best.pth"
NAMED = {"latest": LATEST, "auto": LATEST, "best": BEST}  # what --resume takes besides a path

# What a whole checkpoint has, and of what kind.
STATE: dict[str, Any] = {
    "model": dict,
    "optimizer": dict,
    "scaler": (dict, type(None)),
    "ranks": list,
    "config": dict,
    "epochs_done": int,
    "step_in_epoch": int,
    "steps_per_epoch": int,
    "best_accuracy": (float, type(None)),
}
CONFIG: dict[str, Any] = {"model": str, "optimizer": str, "global_batch_size": int}
OPTIMIZER: dict[str, Any] = {"state": dict, "param_groups": list}
_COPY_AGAIN = "copy the whole folder again, or name another checkpoint"
OF_RANK = {"random", "random_at_epoch_start", "meter"}


def epoch_name(epoch: int) -> str:
    """The file that --save-frequency keeps for this epoch."""
    return f"epoch_{epoch:03d}.pth"


def write(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint. Killed at any instant, this leaves the file that was there before or the new one.

    Raises:
        OSError: it could not be written, as on a full disk. The file that was there before is untouched.
    """
    with atomic_write(path, alone=True) as file:
        writer = _Writer(file)
        torch.save(state, cast(IO[bytes], writer))
        if writer.error is not None:
            raise writer.error


def also_as(path: Path, other: Path) -> None:
    """Let `other` be the checkpoint at `path` too, as atomically; a link where the file system has them.

    Raises:
        OSError: as write.
    """
    with replacing(other, alone=True) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # no links on this file system: a copy is the same to every reader
            shutil.copyfile(path, temporary)
    sync_folder(other.parent)


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU. Only tensors and plain values are read; no code in the file is run.

    Args:
        path: of a sharded one its folder; then without what is sharded.

    Raises:
        UserError: it is not there, cannot be read, is damaged, holds code, or is no checkpoint of this program.
    """
    if shard_folder.is_folder(path):
        shard_folder.contents(path)
        if not (path / shard_folder.RUN).exists():
            raise UserError(f"{path} has lost its {shard_folder.RUN}: {_COPY_AGAIN}")
        return read(path / shard_folder.RUN)
    try:
        with path.open("rb"):
            pass
        if not zipfile.is_zipfile(path):
            raise UserError(
                f"{path} is not a whole checkpoint, but truncated, damaged or something else: resume from another"
            )
        with zipfile.ZipFile(path) as archive:  # torch.load itself looks at no checksum
            broken = archive.testzip()
        if broken is not None:
            raise UserError(f"{path} is damaged (in {broken}): resume from another checkpoint")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror or error}): name another checkpoint with --resume"
        ) from error
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds pickled Python objects, which could run any code, so it is not loaded: resume only "
            "from checkpoints that this program wrote"
        ) from error
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, EOFError, ValueError, KeyError) as error:
        # What the readers raise for a damaged archive differs with the place of the damage.
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is damaged ({first}): resume from another checkpoint") from error
    if not isinstance(state, dict) or "format" not in state or "model" not in state:
        raise UserError(
            f"{path} is not a checkpoint of this program: it may be plain weights; it cannot be resumed"
        )
    if state["format"] != FORMAT:
        raise UserError(f"{path} has checkpoint format {state['format']}, but this version reads {FORMAT}")
    if lacking := _lacking(state):
        raise UserError(
            f"{path} lacks {lacking}, which every checkpoint of this program has: resume from another checkpoint"
        )
    return state


def _lacking(state: dict[str, Any]) -> str:
    """The first thing that is not there, or is of another kind; empty for a whole checkpoint."""
    for parts, kinds in ((state, STATE), (state.get("config"), CONFIG), (state.get("optimizer"), OPTIMIZER)):
        assert isinstance(parts, dict)  # the first round has looked
        for name, kind in kinds.items():
            if name not in parts or not isinstance(parts[name], kind):
                return repr(name)
    for number, one in enumerate(state["ranks"]):
        if not isinstance(one, dict) or not one.keys() >= OF_RANK:
            return f"the random states or the sums of rank {number}"
    return "" if state["ranks"] else "the random states of its ranks"


def whole_one_beside(path: Path) -> str:
    """For a sentence about a file that cannot be read: best.pth, if it can; empty if not."""
    try:
        other = shard_folder.newest(path.with_name(BEST))
        if other is None or other == path or (other.is_dir() and shard_folder.check(other, 0, 1)):
            return ""
        state = read(other)
    except UserError:
        return ""
    where = position(state["epochs_done"], state["step_in_epoch"])
    return f"; {other.name} beside it is whole ({where}): --resume best, or --resume {other}"


def locate(which: str, folder: Path | None) -> Path | None:
    """The file or the folder that --resume means: a path, or latest, best or auto in the run's checkpoint folder.

    Returns None for auto where there is none yet.

    Raises:
        UserError: there is no such file, or nobody may tell.
    """
    if which in NAMED:
        assert folder is not None, which  # options.resolve asks for --run-id
        path = folder / NAMED[which]
    else:
        path = Path(which)
    try:
        if which in NAMED:
            path = shard_folder.newest(path) or path
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:  # below a folder that one may not enter
        raise UserError(
            f"--resume {which}: cannot look for {path} ({error.strerror}): name a file that you may read"
        ) from error
    if is_there and shard_folder.is_folder(path := shard_folder.found(path)):
        return path
    if path.name.startswith(shard_folder.PREFIX):  # auto must not start anew, over what the run has left
        raise UserError(f"--resume {which}: {path} is named as a checkpoint, but gone: resume from another one")
    if is_folder:
        raise UserError(_a_folder(which, path))
    if is_there:
        return path
    if which not in NAMED:
        raise UserError(f"--resume {which}: there is no such file{_instead_of(path)}")
    if which == "auto":
        return None
    raise UserError(
        f"--resume {which}: there is no {path}; leave --resume out to start anew, or use --resume auto, which "
        "goes on where there is a checkpoint and starts anew where there is none"
    )


def _a_folder(which: str, path: Path) -> str:
    if any(path.glob("*.distcp")):  # of torch.distributed.checkpoint; a whole one of ours has files.json
        return (
            f"--resume {which} has shards, but no {shard_folder.FILES}: it was not finished, or not copied whole; "
            + _COPY_AGAIN
        )
    written = [one for inside in (path, path / FOLDER) for one in _checkpoints_in(inside)]
    if written:
        return f"--resume {which} is a folder: name a file in it, such as {written[0]}"
    return f"--resume {which} is a folder: name a file in it; this one has no checkpoint of this program"


def _instead_of(path: Path) -> str:
    """What there is in the place of a file that is missing."""
    folder = path.parent
    if not folder.is_dir():
        return f", and no folder {folder}"
    if shard_folder.is_folder(folder):
        return f" in the sharded checkpoint {folder}: name the folder if it is whole; else {_COPY_AGAIN}"
    there = [file.name for file in _checkpoints_in(folder)]
    return f"; {folder} has {', '.join(there)}" if there else f", and no other checkpoint in {folder}"


def _checkpoints_in(folder: Path) -> list[Path]:
    """The files that name checkpoints: latest, best, then those of epochs."""
    kinds = (LATEST, shard_folder.pointer(Path(LATEST)).name, BEST, shard_folder.pointer(Path(BEST)).name)
    kept = [file for kind in ("epoch_*.pth", f"epoch_*{shard_folder.POINTER}") for file in folder.glob(kind)]
    return [file for file in (*(folder / kind for kind in kinds), *sorted(kept)) if file.is_file()]


class _Writer:
    """A file for torch.save that keeps the first error for later.

    torch's zip writer is C++: an exception from the file comes out of it as another one, or ends the process.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        pass  # write() does it once, at the end
