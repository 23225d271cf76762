"""Text of a student's code, made harmless for HTML: notebook cards and feedback pages take it from here only."""

import html

from lab.grading.feedback import printable


def as_html(text: str) -> str:
    """Return `text` as HTML that shows it: markup, quotes and control characters do nothing; lines stay lines."""
    return "\n".join(html.escape(printable(line)) for line in text.splitlines())
