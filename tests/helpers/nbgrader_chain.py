"""A course and its class, taken through the released nbgrader as an instructor and students would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import class_kinds
from class_kinds import KINDS

from lab.cli import main

DEADLINE = 90.0  # seconds that a submission gets here: the one that hangs uses a third of it
STUDENTS = ("perfect", "half", "cells")  # who fetch and submit by nbgrader; the others' folders are put in place


class Course:
    """A course directory, and commands that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}

    def nbgrader(self, *command: str, cwd: Path | None = None) -> str:
        """Run `nbgrader COMMAND`; returns what it has printed. Fails with that where the exit code is not 0."""
        env = {**os.environ, "LAB_GRADE_DEADLINE": str(DEADLINE), "PYTHONWARNINGS": "ignore"}
        # A student's own settings, as docs/instructor.md has them; none of this machine's.
        config = self.folder.parent / ("instructor" if cwd is None else "student")
        config.mkdir(exist_ok=True)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
            env[name] = str(config)
        if cwd is not None:
            (config / "nbgrader_config.py").write_text(
                "c = get_config()\n"
                f'c.Exchange.root = "{self.folder / "exchange"}"\n'
                'c.CourseDirectory.course_id = "scaling-lab"\n'
            )
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *command],
            cwd=cwd or self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=1200,
        )
        self.said[command[0]] = done.stdout
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout

    def build_and_release(self, assignment: str = "lab") -> None:
        assert main(["course", "build", str(self.folder)]) == 0
        self.nbgrader("generate_assignment", assignment, "--force")
        self.nbgrader("release_assignment", assignment, "--force")

    def hand_in(self, kinds: Iterable[str]) -> None:
        """Students named after the kinds hand in; some of them by fetching and submitting."""
        released = self.folder / "release" / "lab"
        for name in kinds:
            if name in STUDENTS:
                home = self.folder.parent / "homes" / name
                home.mkdir(parents=True)
                if name == STUDENTS[0]:
                    self.nbgrader("fetch_assignment", "lab", cwd=home)
                else:
                    shutil.copytree(released, home / "lab")
                KINDS[name](home / "lab")
                self.nbgrader("submit", "lab", f"--student={name}", cwd=home)
            else:
                place = self.folder / "submitted" / name / "lab"
                shutil.copytree(released, place)
                KINDS[name](place)
        self.nbgrader("collect", "lab", "--update")

    def zipped(self, target: Path, kinds: Iterable[str], zips: Iterable[str]) -> Path:
        """The same submissions as a folder of folders, some of them as zips."""
        for name in kinds:
            place = self.folder / "submitted" / name / "lab"
            if name in zips:
                target.mkdir(exist_ok=True)
                shutil.make_archive(str(target / name), "zip", place)
            else:
                shutil.copytree(place, target / name / "my-lab", symlinks=True)
        return target


def solved(kinds: Iterable[str]) -> dict[str, dict[str, float]]:
    """Kind -> exercise -> the points it must get."""
    return {name: class_kinds.expected(name) for name in kinds}
