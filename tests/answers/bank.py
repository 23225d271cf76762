"""Answers to put in place of a solution region, for tests of the checks."""

import shutil
from pathlib import Path
from textwrap import dedent, indent

from lab.grading.diagnosis import Failed, Outcome
from lab.grading.suite import run_exercise
from lab.syllabus.stubs import BEGIN, END
from lab.syllabus.syllabus import syllabus

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"


def with_answer(tmp_path: Path, region_id: str, code: str) -> Path:
    """A folder with all solutions, except that region `region_id` ("3.1", "3.3a") holds `code` instead.

    Called again with the same tmp_path it replaces one more region. The code is dedented, and indented as the
    region was.
    """
    folder = tmp_path / "code"
    if not folder.exists():
        shutil.copytree(SOLUTIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for begin, line in enumerate(lines):
            match = BEGIN.match(line)
            if match and match[1] + match[2] == region_id:
                end = next(i for i in range(begin, len(lines)) if END.match(lines[i]))
                margin = line[: len(line) - len(line.lstrip())]
                body = indent(dedent(code).strip("\n"), margin).splitlines()
                path.write_text("\n".join([*lines[: begin + 1], *body, *lines[end:]]) + "\n", encoding="utf-8")
                return folder
    raise ValueError(f"no file of {SOLUTIONS.name}/ has a region {region_id}")


def solution(region_id: str) -> str:
    """The reference's own code of a region, dedented: wrong answers are often a small change of it."""
    for path in sorted(SOLUTIONS.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for begin, line in enumerate(lines):
            match = BEGIN.match(line)
            if match and match[1] + match[2] == region_id:
                end = next(i for i in range(begin, len(lines)) if END.match(lines[i]))
                return dedent("\n".join(lines[begin + 1 : end])) + "\n"
    raise ValueError(f"no file of {SOLUTIONS.name}/ has a region {region_id}")


def outcome_of(exercise_id: str, folder: Path) -> Outcome:
    """How the checks of one exercise end with the modules in this folder."""
    return run_exercise(syllabus()[exercise_id], folder).outcome


def verdict(exercise_id: str, folder: Path) -> str:
    """The name of the diagnosis; or "passed", "not started", "blocked", or the text of a lab error."""
    outcome = outcome_of(exercise_id, folder)
    if isinstance(outcome, Failed):
        print("\n".join([f"[{outcome.diagnosis.name}]", *outcome.diagnosis.lines]))  # pytest -rP shows it
        return outcome.diagnosis.name
    return getattr(outcome, "text", outcome.word)
