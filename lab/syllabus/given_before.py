"""Lines of notebooks, texts and comments that students were given by earlier releases and are given no more.

Who works in a package of before hands them in: they are nobody's answer. given_before.txt has them, and `lab
notebooks` adds to it whatever the repository's history has and the files of today have not.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from lab.base.files import write_whole
from lab.syllabus.package import package_files

FILE = Path(__file__).with_name("given_before.txt")
TEXTS = (".ipynb", ".md", ".txt")
STUBS = "exercises/"


def given_before() -> frozenset[str]:
    """Each line, with one space for white space of any kind."""
    return frozenset(FILE.read_text(encoding="utf-8").splitlines())


def add_missing(root: Path) -> int:
    """Add what given_before.txt lacks, in a clone with its history; returns the number of lines."""
    if new := missing(root):
        write_whole(FILE, "\n".join([*FILE.read_text(encoding="utf-8").splitlines(), *new]) + "\n")
    return len(new)


def missing(root: Path) -> list[str]:
    """Lines that were in a committed version of a file which students get, and are in none of today's files.

    Raises:
        OSError: git is not there.
        subprocess.CalledProcessError: `root` is no clone.
    """
    paths = [path.relative_to(root).as_posix() for path in package_files().values() if path.suffix in TEXTS]
    names = [f":(glob)**/{Path(path).name}" for path in paths]  # wherever they lay then
    names.append(f":(glob){STUBS}**/*.py")
    paths += [path.relative_to(root).as_posix() for path in (root / STUBS).rglob("*.py")]
    before: dict[str, str] = {}  # blob -> its path
    for row in _git(
        root, "log", "--full-history", "-m", "--format=", "--raw", "--no-abbrev", "--", *names
    ).splitlines():
        kinds, _, path = row.partition("\t")
        if kinds.startswith(":") and (blob := kinds.split()[3]).strip("0"):
            before[blob] = path.rpartition("\t")[2]
    today = {line for path in paths for line in _lines(path, (root / path).read_text(encoding="utf-8"))}
    known = today | given_before()
    found = (line for blob, path in before.items() for line in _lines(path, _git(root, "cat-file", "blob", blob)))
    return list(dict.fromkeys(line for line in found if line and line not in known))


def _lines(path: str, text: str) -> list[str]:
    if path.endswith(".ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line.startswith("#")] if path.endswith(".py") else lines


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(["git", *command], cwd=root, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")
