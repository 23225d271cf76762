"""--code says whose modules the checks run on."""

from pathlib import Path

import pytest

from lab.syllabus.paths import find_code


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--code", default="solutions", help="solutions, exercises, or a student's folder")


@pytest.fixture(scope="session")
def code(request: pytest.FixtureRequest) -> Path:
    return find_code(request.config.getoption("--code", "solutions"), request.config.rootpath)
