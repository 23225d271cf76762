"""`make site`: the notebooks with their outputs, the mistakes and the results, on any width, with no dead link."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import keep, page
from forbidden import forbidden
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

WIDTHS = (380, 1280)
MOVING = 5_000  # milliseconds
DEADLINE = 900  # seconds to run all notebooks and write all pages; 50 on two free cores
pytestmark = pytest.mark.timeout(DEADLINE + 100)  # whichever test comes first waits for them
# In the page's own words, not in a script: wider than the window, and what it is.
TOO_WIDE = """() => document.documentElement.scrollWidth <= window.innerWidth ? [] :
  [document.documentElement.scrollWidth, ...[...document.querySelectorAll("body *")]
    .filter(one => one.getBoundingClientRect().right > window.innerWidth + 1)
    .slice(0, 5).map(one => one.tagName + "." + one.className)]"""
LOOKED_AT = (
    "index.html",
    "notebooks/0_start.html",
    "notebooks/2_distributed_setup.html",
    "notebooks/4_wrapping.html",
)
LOOKED_AT += ("notebooks/7_benchmarks.html", "docs/mistakes.html", "docs/results/index.html")


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(root / "docs" / "build_site.py"), "--folder", str(folder)]
    subprocess.run(command, check=True, timeout=DEADLINE, cwd=folder)
    return folder / "site"


class Links(HTMLParser):
    """The ids of a page, and all that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := given.get(key))}
        self.targets |= {value for key in ("href", "src") if (value := given.get(key)) is not None}


def pages(site: Path) -> list[str]:
    found = sorted(file.relative_to(site).as_posix() for file in site.rglob("*.html"))
    return [name for name in found if name != "404.html"]


def test_it_shows_the_notebooks_with_outputs_the_mistakes_and_the_results(site: Path, root: Path):
    names = pages(site)
    for book in (root / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{book.stem}.html").read_text()
        assert text.count('class="lab-output"') >= 3, book.name
        assert "<!-- output" not in text
    assert {"index.html", "docs/mistakes.html", "docs/results/index.html", "docs/glossary.html"} <= set(names)
    start = (site / "notebooks" / "0_start.html").read_text()
    assert "Training loss over seconds" in start
    assert "14 of 14" not in start, "progress() as it was when the cell ran"
    assert "The collectives of this cell" in (site / "notebooks" / "2_distributed_setup.html").read_text()
    last = (site / "notebooks" / "7_benchmarks.html").read_text()
    assert "14 of 14 exercises passed" in last
    assert "data:image/png;base64," in last, "the demo's figures"
    front = (site / "index.html").read_text()
    assert all(f"notebooks/{book.stem}.html" in front for book in (root / "notebooks").glob("*.ipynb")), "the menu"


def test_no_solution_no_model_answer_and_no_name_of_this_machine_is_in_it(site: Path):
    root = Path(__file__).resolve().parents[1]
    found = forbidden(root, site.parent / "site-pages")
    assert found == ["CONTRIBUTING.md: a marker"], "which explains it"
    html = "\n".join((site / name).read_text() for name in pages(site) if name.startswith("notebooks/"))
    assert forbidden_lines(root, html) == []
    assert str(root) not in html
    assert "lab-site-" not in html


def forbidden_lines(root: Path, html: str) -> list[str]:
    """Lines of solutions in what cells have put out."""
    stubs = "\n".join(file.read_text() for file in (root / "exercises").rglob("*.py"))
    lines = {line.strip() for file in (root / "solutions").rglob("*.py") for line in file.read_text().splitlines()}
    text = re.sub(r"<[^>]+>", "", html)
    return [line for line in lines if len(line) >= 30 and line not in stubs and line in text]


def test_no_internal_link_is_dead(site: Path):
    read = {name: Links((site / name).read_text()) for name in pages(site)}
    inside = 0
    for name, links in read.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            inside += 1
            file = ((site / name).parent / unquote(parts.path)).resolve() if parts.path else site / name
            assert file.exists(), f"{name}: {target}"
            if parts.fragment and file.suffix == ".html":
                there = file.relative_to(site.resolve()).as_posix() if parts.path else name
                assert unquote(parts.fragment) in read[there].ids, f"{name}: {target}"
    assert inside > 500


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_every_page_fits_a_telephone_and_a_desktop_and_asks_nobody_else(site: Path, address: str):
    with page() as on:
        asked: list[tuple[int, str]] = []
        on.on("response", lambda response: asked.append((response.status, response.url)))
        for name in pages(site):
            on.goto(f"{address}/{name}")
            for width in WIDTHS:
                on.set_viewport_size({"width": width, "height": 900})
                with suppress(
                    PlaywrightTimeoutError
                ):  # the theme moves its search field when the width has changed
                    on.wait_for_function(f"({TOO_WIDE})().length === 0", timeout=MOVING)
                assert on.evaluate(TOO_WIDE) == [], f"{name} at {width} px"
                if name in LOOKED_AT:
                    keep(on, f"site-{width}-{name.replace('/', '-').removesuffix('.html')}")
    assert [one for one in asked if one[0] >= 400 or not one[1].startswith((address, "data:"))] == []


def test_cards_and_figures_are_legible_in_a_dark_theme(address: str):
    with page(width=640) as on:
        on.emulate_media(color_scheme="dark")
        for name in ("0_start", "4_wrapping"):
            on.goto(f"{address}/notebooks/{name}.html")
            colours = on.evaluate(
                """() => ["figure.lab-figure", ".lab-card"].map(which => document.querySelector(which))
                .filter(one => one).map(one => getComputedStyle(one).color)"""
            )
            assert colours
            for colour in colours:
                red, green, blue = map(float, re.findall(r"[\d.]+", colour)[:3])
                assert red + green + blue > 380, f"{name}: dark on dark: {colour}"
            on.locator(".lab-output").first.scroll_into_view_if_needed()
            keep(on, f"site-dark-{name}")
