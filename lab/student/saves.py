"""Notices when a student saves one of the seven modules, by looking: it works on every file system and editor."""

import hashlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from lab.base.source import MAX_MODULE_BYTES

POLL = 0.05  # seconds between two looks; a look at seven small files takes less than a millisecond
SETTLED = 0.02  # seconds without a further change after which a save counts as complete
UNFINISHED = 0.5  # the same for a file that is empty or gone: some editors make it so before they write

# When it was written, how large it is, and a hash of its text: on a disk that keeps whole seconds only, two saves
# may have the same time. None for a file that is not there.
Signature = tuple[int, int, bytes] | None


class Saves:
    """The saves of some files since this object was made, or since `take` was last called."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._seen = {name: signature(folder / name) for name in names}

    def pending(self) -> set[str]:
        """The files that have changed and were not taken yet."""
        return {name for name, seen in self._seen.items() if signature(self._folder / name) != seen}

    def take(self) -> set[str]:
        """Wait until something has been saved, and completely so. Returns the names of the files."""
        while not (changed := self.pending()):
            time.sleep(POLL)
        return self._settle(changed)

    def _settle(self, changed: set[str]) -> set[str]:
        now = {name: signature(self._folder / name) for name in changed}
        since = time.monotonic()
        while time.monotonic() - since < (SETTLED if all(map(_has_text, now.values())) else UNFINISHED):
            time.sleep(SETTLED / 3)
            later = {name: signature(self._folder / name) for name in changed}
            if later != now:
                now, since = later, time.monotonic()
        self._seen |= now
        return changed


def signature(file: Path) -> Signature:
    """What changes when the file is saved. Never blocks on what is no ordinary file, and reads no large one."""
    try:
        info = os.stat(file)
        digest = b""
        if stat.S_ISREG(info.st_mode) and info.st_size <= MAX_MODULE_BYTES:
            digest = hashlib.sha256(file.read_bytes()).digest()
        return info.st_mtime_ns, info.st_size, digest
    except OSError:
        return None


def _has_text(of: Signature) -> bool:
    return of is not None and of[1] > 0
