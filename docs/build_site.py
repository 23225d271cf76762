"""Writes the site, for people who look before they install: notebooks with their outputs, mistakes, results.

`make site` runs it. The notebooks are run on the reference, in a student's package of their own; what their cells
put out goes into the pages as it is. No solution is shown, and no output that would give one away (SECRET). Needs
mkdocs-material: pip install 'scaling-lab[site]'.
"""

import argparse
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.commands.build import build as mkdocs_build
from mkdocs.config import load_config
from nbclient import NotebookClient
from nbformat import NotebookNode

from lab.syllabus.package import start

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "docs/mkdocs.yml"
QUOTES = {"make-it-hang.md"}  # it edits lines of the reference
PAGES = (
    "CONTRIBUTING.md",
    *sorted(f"docs/{file.name}" for file in ROOT.glob("docs/*.md") if file.name not in QUOTES),
    "docs/results/README.md",
)
# Where the links of pages may lead, besides; a link to anything else is shown as text.
CODE = (".py", ".sh", ".toml")
FILES = (".png", ".svg", ".csv")
NOT_SHOWN = ("solutions", "tests", "notebooks")
SECRET = ("trace(", "answer(")  # cells whose output shows where the reference does what
LEFT_OUT = "*(What it shows is left out here: it would tell how the exercise is done.)*"
CELL_SECONDS = 600
LINK = re.compile(r"(?<!`)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *```.*?^ *```)", re.DOTALL | re.MULTILINE)
CSS = """\
/* JupyterLab's names for colours, which cards and figures use, as the theme has them. */
body {
  --jp-ui-font-color1: var(--md-default-fg-color); --jp-ui-font-color2: var(--md-default-fg-color--light);
  --jp-content-font-color1: var(--md-default-fg-color); --jp-content-link-color: var(--md-typeset-a-color);
  --jp-layout-color1: var(--md-default-bg-color); --jp-layout-color2: var(--md-code-bg-color);
  --jp-border-color1: var(--md-default-fg-color--lighter);
  --jp-border-color2: var(--md-default-fg-color--lightest);
}
.lab-output { margin: 0 0 1.5em; overflow-x: auto; font-size: 14px; }
.lab-output pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset .lab-output .lab-seen, .md-typeset .lab-output .lab-strip { display: flex; }
.md-typeset p code, .md-typeset li code { overflow-wrap: anywhere; }
"""


def executed() -> dict[str, NotebookNode]:
    """Every notebook, run on the reference, by name ("0_start"); the demo's measurements are its results."""
    with tempfile.TemporaryDirectory(prefix="lab-site-") as folder:
        home = Path(folder).resolve() / "my-lab"
        start(home)
        shutil.copytree(ROOT / "solutions", home / "exercises", dirs_exist_ok=True)
        demo, results = ROOT / "docs/results/demo", home / "results"
        (results / "figures").mkdir(parents=True)
        shutil.copyfile(demo / "results.csv", results / "results.csv")
        for file in demo.glob("*.png"):
            shutil.copyfile(file, results / "figures" / file.name)
        books = {file.stem: nbformat.read(file, as_version=4) for file in sorted(home.glob("notebooks/*.ipynb"))}
        cells = [cell for book in books.values() for cell in book.cells if is_run(cell)]
        for number, cell in enumerate(cells):
            cell.id = f"cell-{number}"  # in one kernel all are one notebook
        whole = nbformat.v4.new_notebook(cells=cells)
        place = {"metadata": {"path": str(home / "notebooks")}}
        NotebookClient(whole, timeout=CELL_SECONDS, kernel_name="python3", resources=place).execute()
        for cell in cells:  # warnings name the file that they come from, on this machine
            for output in cell.get("outputs", []):
                for shown in (output, output.get("data", {})):
                    for kind in ("text", "text/plain", "text/html"):
                        if kind in shown:
                            shown[kind] = shown[kind].replace(f"{ROOT}/", "")
        return books


def is_run(cell: NotebookNode) -> bool:
    """Whether the site shows what the cell puts out."""
    return cell.cell_type == "code" and not cell.source.startswith(SECRET)


def notebook_page(name: str, book: NotebookNode) -> tuple[str, dict[str, str]]:
    """The page's Markdown, and the HTML that its comments <!-- output ... --> stand for."""
    parts, outputs = [], {}
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if not is_run(cell):
            parts.append(LEFT_OUT)
        for order, output in enumerate(cell.outputs):
            mark = f"<!-- output {name} {number} {order} -->"
            outputs[mark] = f'<div class="lab-output">{as_html(output)}</div>'
            parts.append(mark)
    return "\n\n".join(parts) + "\n", outputs


def as_html(output: NotebookNode) -> str:
    """One output of a cell. Links lead to pages of the site.

    Raises:
        SystemExit: the cell has failed.
    """
    if output.output_type == "error":
        raise SystemExit(f"a cell of the notebooks has failed: {output.ename}: {output.evalue}")
    data: dict[str, Any] = output.get("data", {})
    if "text/html" in data:
        return re.sub(r'href="(\.\./exercises/[\w/]+\.py)"', r'href="\1.html"', data["text/html"])
    text = data.get("text/plain", output.get("text", ""))
    return f"<pre>{text.replace('&', '&amp;').replace('<', '&lt;')}</pre>"


class Pages:
    """The Markdown pages under construction, in folders as in the repository, with what their links need."""

    def __init__(self, folder: Path, known: set[str]) -> None:
        self.folder, self.known = folder, known

    def add(self, name: str, text: str, place: str | None = None) -> None:
        """Write a page; `place` is where its relative links are meant from, if not from where it lies."""
        outside_of_code = [
            part
            if part.lstrip().startswith("```")
            else LINK.sub(lambda link: self._link(link, place or name), part)
            for part in FENCE.split(text)
        ]
        self._write(name, "".join(outside_of_code))

    def _link(self, link: re.Match[str], page: str) -> str:
        image, words, target = link.groups()
        if re.match(r"https?://|#|mailto:", target):
            return link[0]
        path, _, anchor = target.partition("#")
        found = os.path.normpath(Path(page).parent / path).replace(os.sep, "/")
        source = ROOT / found
        if source.is_dir() and f"{found}/README.md" in self.known:
            found = f"{found}/README.md"
        if found.endswith(".ipynb"):
            found = f"{found.removesuffix('.ipynb')}.md"
        elif found == "README.md":
            found = "index.md"
        elif source.is_file() and found.split("/")[0] not in NOT_SHOWN:
            if source.suffix in FILES:
                self._write(found, source.read_bytes())
            elif source.suffix in CODE:
                language = {".py": "python", ".sh": "bash"}.get(source.suffix, "text")
                self._write(
                    f"{found}.md", f"# {found}\n\n```{language}\n{source.read_text(encoding='utf-8')}\n```\n"
                )
                found = f"{found}.md"
        if found not in self.known and not (self.folder / found).is_file():
            return words
        to = os.path.relpath(found, Path(page).parent or ".").replace(os.sep, "/")
        return f"{image}[{words}]({to}{'#' + anchor if anchor else ''})"

    def _write(self, name: str, content: str | bytes) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


def build(pages: Path, site: Path) -> None:
    """Write the pages' Markdown to `pages`, and the site to `site`; both are emptied first."""
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    books = {f"notebooks/{name}.md": notebook_page(name, book) for name, book in executed().items()}
    writer = Pages(pages, {"index.md", *PAGES, *books})
    writer.add("index.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    for name in PAGES:
        writer.add(name, (ROOT / name).read_text(encoding="utf-8"))
    for name, (text, _) in books.items():
        writer.add(name, text)
    (pages / "site.css").write_text(CSS, encoding="utf-8")
    config = load_config(str(CONFIG), docs_dir=str(pages), site_dir=str(site))
    [path] = [entry for entry in config["nav"] if "The guided path" in entry]
    path["The guided path"] = list(books)
    mkdocs_build(config)
    for name, (_, outputs) in books.items():
        page = site / name.replace(".md", ".html")
        text = page.read_text(encoding="utf-8")
        for mark, html in outputs.items():
            text = text.replace(mark, html)
        page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the site to build/site.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="where site/ and site-pages/ go")
    folder = parser.parse_args().folder.resolve()
    build(folder / "site-pages", folder / "site")
    print(f"{folder / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
