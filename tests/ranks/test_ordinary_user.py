"""The attacks again, as an ordinary user: as root the lab gives sandboxes users of their own, here it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = (
    "ranks/test_attacks_observers.py",
    "ranks/test_attacks_reports.py",
    "ranks/test_attacks_sandbox.py",
    "ranks/test_sandbox_users.py",
    "grading/test_student_text.py",
    "course/test_clean.py",
    "course/test_collect.py",
    "course/test_hand_in.py",
    "course/test_limits.py",
)
# A user namespace in which root's files are user 1000's; a process of its own, because there is no way back.
AS_ORDINARY_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def allowed() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*AS_ORDINARY_USER, "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0, reason="the attacks run as an ordinary user already")
@pytest.mark.skipif(not allowed(), reason="needs util-linux's unshare and user namespaces (Linux)")
def test_the_attacks_gain_nothing_as_an_ordinary_user(root: Path, tmp_path: Path):
    files = [str(root / "tests" / name) for name in ATTACKS]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not gpu",
    ]
    done = subprocess.run(
        [*AS_ORDINARY_USER, *command, f"--basetemp={tmp_path / 'attacks'}", *files],
        cwd=root,
        env={
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LAB_NO_SKIPS"))
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert int(last.split()[0]) >= 150, last  # of 172; those that need several users are left out
