"""HTML from the templates in lab/templates: whatever is put into one is shown as text, and does nothing.

jinja2 is imported by the first page: a Python that has matplotlib but no torch, and so perhaps no jinja2, draws
figures all the same.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lab.base.errors import UserError
from lab.base.paths import PACKAGE
from lab.base.words import printable_lines

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> Environment:
    """What all templates are filled with. Every {{ value }} goes through _text(), and is then escaped."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise UserError("pages are made with jinja2, which this Python lacks: pip install jinja2") from error
    return Environment(
        loader=FileSystemLoader(PACKAGE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: object) -> str:
    """A template of lab/templates, filled.

    Raises:
        UserError: there is no jinja2.
        jinja2.UndefinedError: the template needs a value that was not given.
    """
    return environment().get_template(template).render(values)


def _text(value: object) -> object:
    """Without control characters and escape sequences; what a macro has made consists of such texts already."""
    return value if hasattr(value, "__html__") else printable_lines(str(value))
