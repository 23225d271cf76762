"""Which lab has graded: the version people read, and a fingerprint that changes with any line of the lab."""

import hashlib
from functools import cache

from lab import __version__
from lab.base.paths import PACKAGE


@cache
def fingerprint() -> str:
    """A hash of all that the marks depend on in the `lab` package. Results of another lab are not used again."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml") and "student_package" not in path.parts:
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def version() -> str:
    """What stands beside the marks, such as "0.1.0 (3f2a9c01)"."""
    return f"{__version__} ({fingerprint()[:8]})"
