"""docs/make-it-hang.md: each of its edits, on the solution, gives the output that it shows."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from answers.bank import SOLUTIONS

from lab import cli

DOCUMENT = (SOLUTIONS.parent / "docs" / "make-it-hang.md").read_text(encoding="utf-8")
SECTIONS = {
    section.splitlines()[0]: section for section in re.split(r"(?m)^## ", DOCUMENT) if "```diff" in section
}
AS_WRITTEN = torch.__version__.startswith("2.14.")  # other versions of DDP and FSDP may make other calls


def block(section: str, language: str) -> list[str]:
    return section.split(f"```{language}\n")[1].split("\n```")[0].splitlines()


def edit(file: Path, diff: list[str]) -> None:
    old = "".join(f"{line[1:]}\n" for line in diff if line[0] in " -")
    new = "".join(f"{line[1:]}\n" for line in diff if line[0] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


def to_compare(text: str) -> list[str]:
    """Without line numbers, which change with the solution."""
    lines = re.sub(r"(train\.py:)\d+", r"\1N", text).strip().splitlines()
    return lines if AS_WRITTEN else [line for line in lines if re.search(r"train\.py|rank \d", line)]


@pytest.mark.parametrize("title", SECTIONS)
def test_the_output_is_what_the_document_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], title: str
):
    shutil.copytree(SOLUTIONS, tmp_path / "exercises", ignore=shutil.ignore_patterns("__pycache__"))
    edit(tmp_path / "exercises" / "train.py", block(SECTIONS[title], "diff"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["trace", "6.2", "--svg", "trace.svg"]) == 1
    output, _, last = capsys.readouterr().out.strip().rpartition("\n")
    assert last == "The picture is in trace.svg."
    assert to_compare(output) == to_compare("\n".join(block(SECTIONS[title], "text")))
    assert "did not come" in (tmp_path / "trace.svg").read_text(encoding="utf-8")


def test_there_are_three_ways_to_hang():
    assert [title[:2] for title in SECTIONS] == ["1.", "2.", "3."]
