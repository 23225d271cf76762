"""Answers that differ from a right one in a line or two."""


def changed(template: str, **lines: str) -> str:
    """`template` with lines replaced: the keyword is the comment at a line's end ("x = 1  # name").

    The new text may have several lines, which get the old one's margin.
    """
    result = []
    for line in template.splitlines():
        text, _, name = line.partition("  # ")
        margin = text[: len(text) - len(text.lstrip())]
        new = lines.pop(name) if name in lines else text.strip()
        result += [margin + part for part in new.split("\n")]
    if lines:
        raise ValueError(f"the template has no lines {', '.join(lines)}")
    return "\n".join(result)


def labels(template: str) -> list[str]:
    """The names of a template's lines."""
    return [name for _, _, name in (line.partition("  # ") for line in template.splitlines()) if name]
