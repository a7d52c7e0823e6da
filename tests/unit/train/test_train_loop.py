"""The schedule of the learning rate."""

import pytest

from pyddpdiag.train.loop import rate


@pytest.mark.parametrize("total", [1, 2, 3, 5, 7, 220, 5000])
def test_rate_rises_to_its_peak_and_falls_to_zero(total: int) -> None:
    rates = [rate(step, total) for step in range(total + 1)]  # a scheduler looks one step ahead
    assert all(0 <= value <= 1 for value in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    assert max(rates) > 0.9 or total < 5
