"""What is whole in a zip that was cut off before its table of contents: read by the members' own headers.

The layout is section 4.3.7 of PKWARE's APPNOTE.TXT.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO

from lab.course.sent.contents import MAX_NAMES, MAX_NOTEBOOK_BYTES, PIECE

HEADER = struct.Struct("<4s5H3L2H")  # sign, version, flags, method, time, day, checksum, both sizes, both lengths
SIGN = b"PK\3\4"
LOCKED, SIZES_BEHIND, UTF_8 = 0x1, 0x8, 0x800  # flags
DESCRIPTOR = 24  # bytes behind a member at most, where the sizes stand there


def salvaged(file: IO[bytes], target: IO[bytes], take: Callable[[int], None]) -> tuple[list[str], str]:
    """Write the members that are whole, up to the first that is not, into another zip.

    Args:
        take: called with the bytes of each; raises ValueError where that is too much.

    Returns:
        Their names, and that of the first that is not whole; "" where none begins.

    Raises:
        ValueError: see `take`.
    """
    whole: list[str] = []
    at = 0
    with zipfile.ZipFile(target, "w") as archive:
        while len(whole) < MAX_NAMES:
            file.seek(at)
            head = file.read(HEADER.size)
            if len(head) < HEADER.size or not head.startswith(SIGN):
                return whole, "a file whose name is lost" if head.startswith(SIGN) else ""
            _, _, flags, method, time, day, checksum, size, _, length, more = HEADER.unpack(head)
            name = file.read(length).decode("utf-8" if flags & UTF_8 else "cp437", "replace")
            at += HEADER.size + length + more
            file.seek(at)
            later = bool(flags & SIZES_BEHIND)
            try:
                content, at = _content(file, at, method, None if later else size)
            except (ValueError, zlib.error):
                return whole, name
            behind = file.read(DESCRIPTOR) if later else b""
            sums = [checksum] if not later else [int.from_bytes(behind[n : n + 4], "little") for n in (0, 4)]
            if flags & LOCKED or zlib.crc32(content) not in sums:
                return whole, name
            at += max(0, behind.find(b"PK", 4))  # of the next member, or of the table of contents
            if name.endswith("/"):
                continue
            take(len(content))
            when = (1980 + (day >> 9), day >> 5 & 15, day & 31, time >> 11, time >> 5 & 63, (time & 31) * 2)
            archive.writestr(zipfile.ZipInfo(name.replace("\0", "_"), when), content)
            whole.append(name)
    return whole, ""


def _content(file: IO[bytes], at: int, method: int, size: int | None) -> tuple[bytes, int]:
    """A member that begins at `at`, unpacked, and where it ends.

    Args:
        size: of what is packed; None where that stands behind it.

    Raises:
        ValueError, zlib.error: it is not whole, packed in another way, or larger than any file that is read.
    """
    if method == zipfile.ZIP_STORED and size is not None and size <= MAX_NOTEBOOK_BYTES:
        content = b"".join(iter(lambda: file.read(min(PIECE, at + size - file.tell())), b""))
        if len(content) < size:
            raise ValueError("cut off")
        return content, at + size
    if method != zipfile.ZIP_DEFLATED:
        raise ValueError("packed in another way")
    unpack = zlib.decompressobj(-zlib.MAX_WBITS)
    found = bytearray()
    while not unpack.eof:
        packed = unpack.unconsumed_tail or file.read(PIECE)
        found += unpack.decompress(packed, PIECE)
        if not packed or len(found) > MAX_NOTEBOOK_BYTES:
            raise ValueError("cut off, or too large")
    end = file.tell() - len(unpack.unused_data)
    file.seek(end)
    return bytes(found), end
