"""Options: to accept new words (read the diff before it is committed), and to look for flaky answers."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-draws", action="store_true", help="other numbers in every run; words are not compared"
    )
    parser.addoption("--update-golden", action="store_true", help="write the wording of all diagnoses anew")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--update-golden in one process: add -n0, or two write the same file")
