"""An option to accept new words: read the diff before it is committed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the wording of all diagnoses anew")
