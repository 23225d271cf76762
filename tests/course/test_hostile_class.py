"""A class of sixty with all attacks in it, in one run: honest ones have their points, the others are named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from class_kinds import ALL, KINDS, expected, released, solve
from hostile import HOSTILE

from lab.cli import main
from lab.course.store import FOLDER

CLASS = 60
HONEST = ("perfect", "half", "mistakes", "cells", "modules_only")  # what each has alone: test_grade.py


def grade(place: Path, honest: int, names: list[str]) -> dict[str, dict[str, str]]:
    """Student -> row of marks.csv."""
    for number in range(honest):
        kind = HONEST[number % len(HONEST)]
        KINDS[kind](released(place / "class" / f"honest-{kind}-{number}"))
    for name in names:
        folder = released(place / "class" / name)
        solve(folder, "ddp_utils")
        HOSTILE[name].make(folder)
    options = ["--out", str(place / "grades"), "--jobs", "2"]
    assert main(["grade", str(place / "class"), *options]) == 0
    rows = csv.DictReader((place / "grades" / "marks.csv").open(encoding="utf-8"))
    return {row["student"]: row for row in rows}


def judge(place: Path, rows: dict[str, dict[str, str]], names: list[str]) -> None:
    """Each honest one has what it has alone, and nothing to look at; each other one is named."""
    wrong = []
    for student, row in rows.items():
        if student.startswith("honest-"):
            found = {name: float(row[name] or -1) for name in ALL}
            if found != expected(student.split("-")[1]) or row["to_look"]:
                wrong.append((student, found, row["to_look"]))
        else:
            attack = HOSTILE[student]
            if attack.said not in row["to_look"] + row["remarks"] or float(row["points"]) > attack.most:
                wrong.append((student, row["points"], row["to_look"], row["remarks"]))
    assert wrong == []
    assert {name for name in rows if not name.startswith("honest-")} == set(names)
    sizes = {path.name: path.stat().st_size for path in (place / "grades" / FOLDER).iterdir()}
    assert max(sizes.values()) < 4 << 20, sizes


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_class_of_sixty_with_all_attacks_in_it_is_graded_to_the_end(tmp_path: Path):
    names = list(HOSTILE)
    rows = grade(tmp_path, CLASS - len(names), names)
    assert len(rows) == CLASS
    judge(tmp_path, rows, names)
