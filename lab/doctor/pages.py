"""SYSTEM.md and docs/reproduce.md as Markdown; requirements-lock.txt."""

import ast
import platform
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import __version__
from lab.base.errors import UserError
from lab.doctor import machine

RESULTS = Path("docs", "results", "commands.toml")  # in the repository: what made each result


@dataclass(frozen=True)
class Result:
    """A section of docs/results/README.md, its figures, and what made them."""

    title: str
    needs: str
    commands: tuple[str, ...]
    files: tuple[str, ...]  # relative to docs/results


@dataclass(frozen=True)
class Benchmark:
    """A file of benchmarks/, as its docstring describes it."""

    claim: str
    command: str
    needs: str


def system_page(date: str) -> str:
    """What this machine is. `date` is that of the measurement."""
    cards, topology = machine.cards(), machine.topology()
    parts = [
        "# The system that these measurements were made on",
        f"Written by `lab system` on {date}. [reproduce.md](docs/reproduce.md) has the commands.",
        "## Machine",
        _table(machine.machine() | (cards or {"GPUs": "none"})),
    ]
    if topology:
        parts += ["How the GPUs are connected (`nvidia-smi topo -m`):", _block([topology])]
    parts += ["## Software", _table(machine.software()), "## Packages", _block(machine.packages())]
    return "\n\n".join(parts) + "\n"


def lock(date: str) -> str:
    """Every installed package with its version, for `pip install -r`. `date` is that of the measurement."""
    ours = f"scaling-lab=={__version__}"
    software = machine.software()
    lines = [
        f"# Written by `lab system` on {date}, with Python {platform.python_version()} on {platform.machine()}.",
        f"# Without {ours} itself: install the repository's commit {software.get('commit', '(unknown)')}.",
    ]
    if "+" in software["PyTorch"]:  # 2.11.0+cu130: for one CUDA, and not from everywhere
        lines.append(
            "# PyTorch is a build of its own kind: pytorch.org/get-started/locally has the command for it."
        )
    return "\n".join([*lines, *(one for one in machine.packages() if one != ours)]) + "\n"


def reproduce_page(root: Path) -> str:
    """The commands behind every result of the repository at `root`. Raises as read_results does."""
    parts = [
        "# How to make every figure again",
        "Written by `lab system` from [results/commands.toml](results/commands.toml) and the files in "
        "`benchmarks/`. `lab system --dir DIR` writes SYSTEM.md beside your own measurements: what machine, which "
        "versions. Seconds will differ from machine to machine; what is claimed is ratios.",
        _block(["make demo                     # once: sets up .venv", "source .venv/bin/activate"]),
        "## Results",
    ]
    for result in read_results(root):
        parts += [f"### {result.title}", f"Needs {result.needs}.", _block(result.commands)]
        if result.files:
            parts.append("Makes " + ", ".join(f"[{name}](results/{name})" for name in result.files) + ".")
    parts.append("## Benchmarks")
    for benchmark in read_benchmarks(root):
        needs = f" Needs {benchmark.needs}." if benchmark.needs else ""
        parts += [f"{benchmark.claim}{needs}", _block([benchmark.command])]
    return "\n\n".join(parts) + "\n"


def read_results(root: Path) -> list[Result]:
    """The list of docs/results/commands.toml.

    Raises:
        UserError: it is not there, or not such a list.
    """
    path = root / RESULTS
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no TOML: {error}") from error
    return [_result(path, one) for one in table.get("result", [])]


def _result(path: Path, table: dict[str, Any]) -> Result:
    try:
        return Result(
            title=table["title"],
            needs=table["needs"],
            commands=tuple(table["commands"]),
            files=tuple(table.get("files", ())),
        )
    except KeyError as error:
        raise UserError(f"{path}: the result {table.get('title', '')!r} has no {error}") from error


def read_benchmarks(root: Path) -> list[Benchmark]:
    """Claim, command and needs from the docstring of each file in benchmarks/ that has a line `Run: ...`."""
    found = []
    for path in sorted((root / "benchmarks").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        run = re.search(r"^Run: (\S.*?)(?:\s{2,}\((.*)\))?$", text, re.MULTILINE)
        if run:
            claim = re.sub(r"^Claims?: ", "", " ".join(text.partition("\n\n")[0].split()))
            found.append(Benchmark(claim[0].upper() + claim[1:], run[1], (run[2] or "").removeprefix("needs ")))
    return found


def _table(facts: machine.Facts) -> str:
    rows = [f"| {name} | {value.replace('|', '/')} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _block(lines: list[str] | tuple[str, ...]) -> str:
    return "\n".join(["```", *lines, "```"])
