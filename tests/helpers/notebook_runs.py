"""Runs notebooks in a real kernel, several of them one after the other in the same one."""

import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode


def run_cells(folder: Path, sources: Sequence[str], **environ: str) -> list[NotebookNode]:
    """Run code cells in a new kernel whose current folder is `folder`. Raises CellExecutionError."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return _run(folder, cells, environ)


def run_notebooks(folder: Path, names: Sequence[str], more: Sequence[str] = ()) -> list[NotebookNode]:
    """Run all cells of notebooks in `folder`, one notebook after the other, and then some more, in one kernel."""
    cells = [cell for name in names for cell in nbformat.read(folder / name, as_version=4).cells]
    cells += [nbformat.v4.new_code_cell(source) for source in more]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return _run(folder, cells, {})


def shown(cell: NotebookNode) -> str:
    """All that a cell has put out, as text."""
    return "\n".join(
        output["data"]["text/plain"] if "data" in output else output.get("text", "") for output in cell.outputs
    )


def errors(cells: Sequence[NotebookNode]) -> list[str]:
    """What went to stderr or was an error, of all cells."""
    found = []
    for cell in cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" or output.get("name") == "stderr":
                found.append(f"{cell.source}: {output.get('text') or output.get('evalue')}")
    return found


def _run(folder: Path, cells: list[NotebookNode], environ: dict[str, str]) -> list[NotebookNode]:
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    with mock.patch.dict(os.environ, environ):
        client.execute()
    return notebook.cells
