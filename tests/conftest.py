"""Shared by all tests: what lies beside the project, and a run in which no test may be skipped."""

import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ("parallel",)

ROOT = Path(__file__).resolve().parent.parent

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and tools beside the project; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs the real data in {folder}")
    return folder


@pytest.fixture(autouse=True)
def environment_as_before():
    """Some code sets variables for the programs that it starts: they must not reach the next test."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With LAB_NO_SKIPS=1 a skipped test fails, so that a missing service cannot hide behind a green run."""
    report = yield
    if report.skipped and os.environ.get("LAB_NO_SKIPS") == "1" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"LAB_NO_SKIPS=1, but this test was skipped: {reason}"
    return report
