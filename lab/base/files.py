"""What processes on one or several file systems need: files written whole or not at all, and who goes first."""

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under `path` only when the block has ended well; makes missing folders.

    The bytes go to a temporary name beside `path`, are flushed to the disk and renamed, so a process killed
    at any instant leaves the old file or the new one, and of several writers at once the last one wins whole.
    Raises OSError as open and write do; then `path` is as before and the temporary file is gone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself survives a power cut only once the folder is on the disk
    finally:
        os.close(folder)


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
