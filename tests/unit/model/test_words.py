from __future__ import annotations

import pytest

from pyddpdiag.model.words import count, listed, number, percent, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (0.0004, "0.000"),
        (0.0123, "0.012"),
        (0.0996, "0.10"),
        (0.456, "0.46"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (12345.6, "12346"),
        (-0.5, "-0.50"),
    ],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_words() -> None:
    assert [size(n) for n in (0, 999, 4096, 25_200_000, 3 * 10**9)] == [
        *("0 B", "999 B", "4.10 kB", "25.2 MB", "3.00 GB")
    ]
    assert (count(1, "step"), count(2, "step"), percent(0.386)) == ("1 step", "2 steps", "39%")
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(10), 2) == "0, 1 and 8 more"
