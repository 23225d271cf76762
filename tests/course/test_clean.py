"""What students wrote, in nbgrader's pages: whatever they tried, it links to the web at most and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import nbgrader
import pytest
from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from traitlets.config import Config, PyFileConfigLoader

from lab.course.build import CONFIG
from lab.course.clean import clean_html, markdown2html
from lab.course.config import config_text

TEMPLATES = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ATTACKS = (
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#115;cript:alert(1))",
    "[x](&#x6A;avascript&colon;alert(1))",
    "[x](java%0ascript:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](\x01javascript:alert(1))",
    "[x][y]\n\n[y]: javascript:alert(1)",
    "[x]\n\n[x]: <javascript:alert(1)>",
    "<javascript:alert(1)>",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](data:text/html,<script>alert(1)</script>)",
    f"[x](data:image/png;base64,{PIXEL})",
    "[x](file:///etc/passwd)",
    "[x](/api/contents)",
    "[x](../../submitted/eve/lab/1_model.ipynb)",
    "[x](//evil.example/x)",
    "[x](#answer-why-shape)",
    "![x](http://evil.example/x.png)",
    "![x](//evil.example/x.png)",
    "![x](/logout)",
    "![x][y]\n\n[y]: https://evil.example/x.png",
    "![x](data:image/svg+xml;base64,PHN2Zy8+)",
    "![x](data:image/png,%3Csvg%3E)",
    "![x](data:image/png;base64,AAAA&quot; onerror=&quot;alert(1))",
    "[![x](http://evil.example/x.png)](javascript:alert(1))",
    '<a href="javascript:alert(1)">x</a>',
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '<iframe src="https://evil.example"></iframe>',
    '<form action="https://evil.example"><input name="x"></form>',
    '<div style="background:url(https://evil.example/x)" id="answer-why-shape" class="score-saved">x</div>',
    "<base href='https://evil.example/'>",
    "<style>@import 'https://evil.example/x.css'</style>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "```mermaid\ngraph LR; A-->B; click A 'javascript:alert(1)'\n```",
    "$\\href{javascript:alert(1)}{x}$ <noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "# answer-why-shape\n\n| a |\n|:-:|\n| [x](javascript:alert(1)) |",
)


def harmless(html: str) -> None:
    """No link, picture, script, style, form or name of the page's own."""
    for tag in BeautifulSoup(html, "html.parser").find_all():
        assert tag.name not in (
            "script",
            "style",
            "svg",
            "iframe",
            "form",
            "input",
            "base",
            "math",
            "link",
            "meta",
        )
        assert set(tag.attrs) <= {"href", "src", "alt", "title", "class", "align", "rel"}, tag
        assert re.match("https?://|mailto:", str(tag.get("href", "https://"))), tag
        assert str(tag.get("src", "data:image/png;base64,")).startswith("data:image/png;base64,"), tag
        assert not {"score-saved", "save-icon"} & set(tag.get("class", []))


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_that_could_do_something_is_left(text: str):
    harmless(markdown2html({}, text))
    harmless(clean_html(text))


def test_what_is_text_stays_readable():
    said = "In prose javascript:alert(1), in `javascript:void(0)`, and\n\n    a <b> & javascript:\n\n$a < b$"
    text = BeautifulSoup(markdown2html({}, said), "html.parser").get_text()
    for part in ("In prose javascript:alert(1)", "javascript:void(0)", "a <b> & javascript:", "$a < b$"):
        assert part in text
    shown = markdown2html(
        {}, "**b** [x](https://a.org/?a=1&b=2) [m](mailto:a@b.c)\n\n```python\nimport os\n```\n\n- a"
    )
    assert '<a href="https://a.org/?a=1&amp;b=2" rel="noopener noreferrer">x</a>' in shown
    assert 'href="mailto:a@b.c"' in shown
    assert '<span class="kn">import</span>' in shown
    assert "<strong>b</strong>" in shown
    assert "(a picture that is not shown: plan http://a.org/p.png)" in markdown2html(
        {}, "![plan](http://a.org/p.png)"
    )


def test_only_pasted_png_and_jpeg_pictures_are_shown():
    cell = {"attachments": {"p": {"image/png": PIXEL}, "s": {"image/svg+xml": "PHN2Zy8+", "image/png": PIXEL}}}
    shown = markdown2html({"cell": cell}, "![a](attachment:p)")
    assert f'<img alt="a" src="data:image/png;base64,{PIXEL}">' in shown
    assert "<img" not in markdown2html({"cell": cell}, "![a](attachment:s)")
    missing = markdown2html({"cell": cell}, "![a](attachment:none) <b>")
    assert "here it is as it was typed:</em></p><pre>![a](attachment:none) &lt;b&gt;</pre>" in missing


def exported(template: str, tmp_path: Path, *cells: Any) -> str:
    """A page of nbgrader's, as the course's configuration makes it."""
    (tmp_path / CONFIG).write_text(config_text({}))
    config: Config = PyFileConfigLoader(CONFIG, path=str(tmp_path)).load_config()
    config.HTMLExporter.template_name = template
    config.HTMLExporter.extra_template_paths = [
        str(TEMPLATES.parent / "static" / "components" / "bootstrap" / "css")
    ]
    config.HTMLExporter.extra_template_paths += [
        str(found.parent) for found in TEMPLATES.parent.rglob("dist/css/bootstrap.min.css")
    ]
    nbgraders = {"notebook": "1_model", "score": 0, "max_score": 1, "late_penalty": 0}
    resources = {"base_url": "", "index": 0, "total": 1, "nbgrader": nbgraders}
    page, _ = HTMLExporter(config=config).from_notebook_node(new_notebook(cells=list(cells)), resources)
    return page


def answer(source: str) -> Any:
    own = {
        "schema_version": 3,
        "grade": True,
        "grade_id": "answer-x",
        "locked": False,
        "solution": True,
        "points": 2,
    }
    return new_markdown_cell(source, metadata={"nbgrader": own | {"task": False, "score": 0, "comment": source}})


@pytest.mark.parametrize("template", ["formgrade", "feedback"])
def test_nbgrader_s_pages_use_it_and_have_a_policy(template: str, tmp_path: Path):
    svg = new_output("display_data", data={"image/svg+xml": "<svg/>", "text/html": "<a href='javascript:1'>y</a>"})
    code = new_code_cell("javascript:1", outputs=[svg])
    page = BeautifulSoup(exported(template, tmp_path, *map(answer, ATTACKS), code), "html.parser")
    for shown in page.select(".text_cell_render, .panel-footer, .output_area"):
        for own in shown.select("textarea"):
            own.decompose()
        harmless(shown.decode_contents().replace('class="output', 'class="x'))
    policy = page.select_one("meta[http-equiv=Content-Security-Policy]")
    assert policy is not None
    assert "'unsafe-inline'" not in str(policy["content"]).partition("script-src")[2].partition(";")[0]
    [own] = [script for script in page.find_all("script") if script.get("nonce")]
    assert f"'nonce-{own['nonce']}'" in str(policy["content"])
    if template == "formgrade":  # what comes behind the policy still runs
        behind = page.select("nav ~ script")
        words = [script.string for script in behind] + [str(tag["onclick"]) for tag in page.select("[onclick]")]
        assert len(words) == 3
        for word in words:
            assert base64.b64encode(hashlib.sha256(str(word).encode()).digest()).decode() in str(policy["content"])
