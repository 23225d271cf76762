"""Files written whole or not at all; and which process goes first, of those that see one file system."""

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A new name beside `path`: the file made under it takes the place of `path` when the block has ended well.

    A process killed at any instant leaves the old file or the new one, and of several writers at once the last
    one wins whole. Whatever the block raises, `path` is then as before and the new name is gone.

    Args:
        alone: nobody else writes `path`. The new name is then always the same, so that kills do not fill the disk.
    """
    token = "" if alone else f".{secrets.token_hex(8)}"
    temporary = path.with_name(f".{path.name}{token}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of one that was killed
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first error counts
            temporary.unlink()
        raise


def write_whole(path: Path, content: str | bytes, *, mode: int | None = None, alone: bool = False) -> None:
    """Write a file into a folder that is there: a reader sees the old content or the new, never half of it.

    Args:
        content: text is written in UTF-8, its line ends as they are.
        mode: permissions, whatever the umask says; None for those of a new file.
        alone: as for replacing().

    Raises OSError as open and write do; the old file is then as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, alone=alone) as temporary:
        # With a mode of its own, nobody else may open the file before it has that.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)


@contextmanager
def atomic_write(path: Path, *, alone: bool = False) -> Iterator[BinaryIO]:
    """Open a file that appears under `path`, on the disk itself, when the block has ended well; makes its folder.

    For what takes long to make: not even a power cut leaves half of it. Raises OSError as open and write do.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, alone=alone) as temporary, open(temporary, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a rename survives a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_first_on_filesystem(path: Path) -> bool:
    """Whether this process is the one that should download and write for everyone who sees the folder `path`.

    A collective call: every process of the default group makes it, each with its own idea of `path`. A folder
    that is not there yet counts as its nearest parent that is; nothing is created for it. Each process puts an
    empty file with its rank there and looks whose files it can see; the smallest rank in sight is the first.
    So one process is chosen on a shared file system, and one on each node where the folder is local to the node.

    Where a process sees no file at all, because nobody may write there, the smallest rank of each host is the
    first: it can still read for the others, or fail with a clear sentence.
    """
    import torch.distributed as dist

    rank = dist.get_rank()
    # Rank 0's token tells the files of this call from those of another job, or of one that was killed.
    mine = (socket.gethostname(), secrets.token_hex(8))
    everyone: list[tuple[str, str]] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    token = everyone[0][1]

    folder = path.absolute()
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    probe = folder / f".first-{token}-{rank}"
    try:
        probe.touch(exist_ok=False)
    except OSError:  # not an error yet: another rank may have written, or nobody needs to
        written = False
    else:
        written = True
    dist.barrier()  # every file is there
    # The folder is listed, and now for the first time, rather than tested name by name: a network file system
    # may remember that a name was missing, or an old listing, for up to a minute.
    visible = _ranks_in(folder, token)
    dist.barrier()  # everyone has looked
    if written:
        probe.unlink(missing_ok=True)
    if visible:
        return rank == min(visible)
    return rank == min(other for other, (host, _) in enumerate(everyone) if host == mine[0])


def _ranks_in(path: Path, token: str) -> set[int]:
    """The ranks whose files with this token are in the folder; none where it cannot be listed."""
    try:
        names = os.listdir(path)
    except OSError:
        return set()
    matches = (re.fullmatch(rf"\.first-{token}-(\d+)", name) for name in names)
    return {int(match[1]) for match in matches if match}
