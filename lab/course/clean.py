"""What students wrote, as HTML in nbgrader's pages: it links to the web at most, loads nothing, and runs nothing.

The rendered HTML is cleaned, not the text that it was made of: Markdown has more spellings of a link than anybody
can list. Only what is named here is left. nbgrader_config.py puts these filters in the place of nbconvert's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html import escape
from typing import Any

import nh3
from bs4 import BeautifulSoup
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import InvalidNotebook

from lab.base.words import printable_lines

TEXT = {"b", "blockquote", "br", "code", "del", "div", "em", "hr", "i", "kbd", "li", "ol", "p", "pre", "s", "span"}
TEXT |= {"strong", "sub", "sup", "ul", "h1", "h2", "h3", "h4", "h5", "h6"}
TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"*": {"class", "title"}, "a": {"href"}, "img": {"src", "alt"}, "td": {"align"}, "th": {"align"}}
LINK = re.compile(r"(https?://|mailto:)", re.IGNORECASE)
PICTURE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
# Of highlighted code, and of colours in outputs: no class of the page's own, which could pass for a part of it.
CLASS = re.compile(r"(highlight|hl-[a-z0-9]+|[a-z][a-z0-9]{0,2}|ansi-[a-z-]+)( |$)")


def clean_html(html: object) -> str:
    """The HTML with the tags and attributes above alone, and in place of other pictures what they were."""
    text = html.decode(errors="replace") if isinstance(html, bytes) else str(html)
    soup = BeautifulSoup(text, "html.parser")
    for image in soup.find_all("img"):
        source = str(image.get("src", ""))
        if not PICTURE.fullmatch(source):
            image.replace_with(f"(a picture that is not shown: {image.get('alt') or ''} {source[:200]})")
    return nh3.clean(
        str(soup),
        tags=TEXT | TABLES | {"a", "img"},
        attributes=ATTRIBUTES,
        attribute_filter=_allowed,
        url_schemes={"http", "https", "mailto", "data"},
    )


def _allowed(tag: str, attribute: str, value: str) -> str | None:
    rules: dict[str, Callable[[str], object]] = {
        "href": LINK.match,
        "src": PICTURE.fullmatch,
        "class": _no_class_of_the_page,
    }
    rule = rules.get(attribute)
    return value if rule is None or rule(value) else None


def _no_class_of_the_page(value: str) -> bool:
    return bool(re.fullmatch(f"(?:{CLASS.pattern})+", value))


@pass_context
def markdown2html(context: Context | dict[str, Any], source: str) -> str:
    """A Markdown cell as HTML; as it was typed where it cannot be rendered: a missing picture is enough."""
    try:
        return clean_html(_exporter().markdown2html(context, source))
    except (InvalidNotebook, ValueError, RuntimeError) as error:  # a RecursionError is one
        why = f"This text cannot be shown as Markdown ({type(error).__name__}); here it is as it was typed:"
        return f"<p><em>{why}</em></p><pre>{escape(printable_lines(source))}</pre>"


@cache
def _exporter() -> HTMLExporter:
    return HTMLExporter(exclude_anchor_links=True)
