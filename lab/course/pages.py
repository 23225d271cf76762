"""HTML that a browser can show anywhere: no scripts, nothing from outside, readable without colours."""

from __future__ import annotations

from collections.abc import Iterable

from lab.base.words import as_html

# Even if something of a student's got through: a browser runs and loads nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

STYLE = """
:root{color-scheme:light}
body{font:15px/1.55 system-ui,sans-serif;color:#1c1f24;background:#fff;margin:0 auto;padding:24px;max-width:62rem}
h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:28px 0 8px}
p{margin:6px 0}.quiet{color:#565d66}.number{text-align:right;font-variant-numeric:tabular-nums}
ul.plain{margin:6px 0;padding-left:20px}
table{border-collapse:collapse}th,td{padding:3px 8px;border:1px solid #cfd4da;vertical-align:top}
th{background:#f3f4f6;text-align:left;font-weight:600}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f3f4f6;padding:8px 10px;margin:6px 0;
font:13px/1.5 ui-monospace,monospace;max-height:24em;overflow:auto}
.wide{overflow-x:auto}
"""


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A whole page around pieces of HTML. The title is escaped here, the pieces must be."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{as_html(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )
