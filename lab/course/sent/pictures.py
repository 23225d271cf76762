"""Pictures that were pasted into a cell."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from lab.base.words import encodable

# What a file that is one begins with, whatever it says that it is.
PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
MAX_NAMES = 200  # in one cell

NAME = r"attachment:(?P<name>(?:[^()<>\"']|\([^()]*\))+)"
SHOWN = re.compile(rf"!\[(?P<alt>[^\]]*)\]\(\s*<?{NAME}>?(?:\s+\"[^\"]*\")?\s*\)")
SHOWN_AS_HTML = re.compile(rf"<img\b[^<>]*?\bsrc=[\"']?{NAME}[\"']?[^<>]*>", re.IGNORECASE)
DATA = r"data:(?P<kind>image/(?:png|jpeg));base64,(?P<data>[A-Za-z0-9+/=\s]+?)"
INLINE = re.compile(rf"!\[(?P<alt>[^\]]*)\]\(\s*<?{DATA}>?\s*\)")
INLINE_AS_HTML = re.compile(rf"<img\b[^<>]*?\bsrc=[\"']?{DATA}[\"'][^<>]*>", re.IGNORECASE)

Pictures = dict[str, dict[str, str]]  # name of the picture -> type -> base64, as in a cell's `attachments`


def pasted(cell: dict[str, Any], grade_id: str, room: int, remarks: list[str]) -> Pictures:
    """The pictures pasted into an answer, and remarks on those that are left out."""
    found: Pictures = {}
    attachments = cell.get("attachments")
    for name, types in list(attachments.items())[:MAX_NAMES] if isinstance(attachments, dict) else []:
        types = types if isinstance(types, dict) else {}
        kind, data = next(((kind, _base64(data)) for kind, data in types.items() if kind in PICTURES), ("", ""))
        if not kind or not _is_picture(kind, data):
            remarks.append(f"{grade_id}: {encodable(name[:100])} is no PNG or JPEG picture, and was left out")
        elif len(data) > room or len(name) > 200:
            remarks.append(f"{grade_id}: the picture {encodable(name[:100])} was left out: {len(data) >> 10} KB")
        else:
            found[encodable(name)] = {kind: data}
            room -= len(data)
    return found


def _base64(data: Any) -> str:
    """Without line ends, which notebooks may have in it."""
    if isinstance(data, list):
        data = "".join(part for part in data if isinstance(part, str))
    return "".join(data.split()) if isinstance(data, str) else ""


def _is_picture(kind: str, data: str) -> bool:
    try:
        return base64.b64decode(data, validate=True).startswith(PICTURES[kind])
    except (binascii.Error, ValueError):
        return False


def new_name(title: str, types: dict[str, str], there: Pictures) -> str:
    """A name for a picture that no other of the answer has: JupyterLab calls many "image.png"."""
    names = itertools.chain([title], (f"{number}-{title}" for number in itertools.count(2)))
    return next(name for name in names if there.get(name, types) == types)


def with_names(text: str, new: Mapping[str, str]) -> str:
    """A text that shows its pictures by their new names."""
    for title, name in new.items():
        if name != title:
            for form in (title, quote(title)):
                text = text.replace(f"(attachment:{form})", f"(attachment:{quote(name)})")
    return text


def lifted(cell: dict[str, Any], text: str) -> tuple[dict[str, Any], str]:
    """A cell whose pictures are all pasted ones, and its text, where some were written out in the text."""
    own = cell.get("attachments")
    attachments = dict(own) if isinstance(own, dict) else {}

    def paste(found: re.Match[str]) -> str:
        name = f"in-the-text-{len(attachments) + 1}"
        attachments[name] = {found["kind"]: found["data"]}
        return f"![{found.groupdict().get('alt') or ''}](attachment:{name})"

    for pattern in (INLINE, INLINE_AS_HTML):
        text = pattern.sub(paste, text)
    return cell | {"attachments": attachments}, text


def placed(text: str, pictures: Pictures) -> tuple[str, Pictures]:
    """Markdown that every renderer takes, and its pictures under plain names.

    A picture that is nowhere is named in its place; one that the text does not show comes at the end.
    """
    names = {title: f"picture-{number}" for number, title in enumerate(pictures, 1)}
    shown = set()

    def place(found: re.Match[str]) -> str:
        title = next((one for one in (found["name"], unquote(found["name"])) if one.strip() in names), "").strip()
        alt = found.groupdict().get("alt") or ""
        if not title:
            return f"(a picture that was not handed in: {' '.join((alt, found['name'])).strip()})"
        shown.add(title)
        return f"![{alt}](attachment:{names[title]})"

    for pattern in (SHOWN, SHOWN_AS_HTML):
        text = pattern.sub(place, text)
    rest = [
        f"![{title}](attachment:{name})".replace("\n", " ") for title, name in names.items() if title not in shown
    ]
    return "\n\n".join([text, *rest]), {names[title]: types for title, types in pictures.items()}
