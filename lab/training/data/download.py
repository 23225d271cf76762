"""Downloads: a file is there whole, with the right checksum, or not at all."""

import hashlib
import http.client
import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from lab.base.errors import UserError
from lab.base.files import atomic_write
from lab.training.data.image_cache import note

NETWORK_TIMEOUT = 30.0  # seconds without an answer
CHUNK = 1 << 20  # bytes
REPORT_EVERY = 5.0  # seconds between two lines of progress


def fetch_line(what: str, data_dir: Path) -> str:
    """The command to type on a machine with internet."""
    return f"lab fetch {what} --data-dir {shlex.quote(str(data_dir))}"


def download(urls: Sequence[str], path: Path, *, algorithm: str, digest: str, what: str, data_dir: Path) -> None:
    """Download a file from the first of `urls` that has it, and name it `path` only when it is whole.

    Args:
        urls: the same file on several servers.
        algorithm, digest: "md5" or "sha256", and how the file's digest in it begins.
        what: the name for `lab fetch`.
        data_dir: the folder that the user named, for the sentence when it fails.

    Raises:
        UserError: the file could be had nowhere, or cannot be written; `path` is as before.
    """
    problems = []
    for url in urls:
        note(f"Downloading {url} to {path.parent}")
        try:
            _download(url, path, algorithm, digest)
            return
        except _Unreachable as error:
            problems.append(f"{url}: {error}")
        except OSError as error:
            raise UserError(
                f"Cannot write {path} ({error.strerror or error}): free some space, or choose a --data-dir that "
                "you may write to."
            ) from error
    raise UserError(
        f"{path.name} is not in {data_dir} and could not be downloaded ({'; '.join(problems)}): where there is "
        f"internet, as on a login node, type `{fetch_line(what, data_dir)}`."
    )


class _Unreachable(Exception):
    """Why a server did not give the file."""


def _download(url: str, path: Path, algorithm: str, digest: str) -> None:
    """Raises _Unreachable for the network's part, OSError for the disk's."""
    request = urllib.request.Request(url, headers={"User-Agent": "scaling-lab"})
    found = hashlib.new(algorithm)
    try:
        response = urllib.request.urlopen(request, timeout=NETWORK_TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        raise _Unreachable(_reason(error)) from error
    begin = reported = time.monotonic()
    with response, atomic_write(path) as file:
        size = int(response.headers.get("Content-Length") or 0)
        while chunk := _read(response):
            file.write(chunk)
            found.update(chunk)
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                of = f" of {size / 2**20:,.0f}" if size else ""
                note(f"{file.tell() / 2**20:,.0f}{of} MiB, {reported - begin:.0f} s")
        # Raised inside the block, so that the file does not appear.
        if size and file.tell() != size:
            raise _Unreachable(f"the connection was lost after {file.tell():,} of {size:,} bytes")
        if not found.hexdigest().startswith(digest):
            raise _Unreachable(f"its {algorithm} checksum is not {digest}")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _Unreachable(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    return str(getattr(error, "reason", None) or error) or type(error).__name__
