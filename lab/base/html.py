"""HTML from the templates in lab/templates: whatever is put into one is shown as text, and does nothing."""

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lab.base.paths import PACKAGE
from lab.base.words import printable_lines


@cache
def environment() -> Environment:
    """What all templates are filled with. Every {{ value }} goes through _text(), and is then escaped."""
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
        jinja2.UndefinedError: it needs a value that was not given.
    """
    return environment().get_template(template).render(values)


def _text(value: object) -> object:
    """Without control characters and escape sequences; what a macro has made consists of such texts already."""
    return value if isinstance(value, Markup) else printable_lines(str(value))
