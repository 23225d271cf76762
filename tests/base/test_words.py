"""Numbers for people."""

import pytest

from lab.base.words import digits


@pytest.mark.parametrize(
    ("value", "count", "text"),
    [
        (1260.3, 3, "1260"),  # not 1.26e+03
        (0.000042, 1, "0.00004"),
        (12.345, 4, "12.35"),
        (-0.5, 3, "-0.5"),
        (0.0, 3, "0"),
        (float("nan"), 3, "nan"),
    ],
)
def test_digits_without_an_exponent(value: float, count: int, text: str):
    assert digits(value, count) == text
