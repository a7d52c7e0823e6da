"""Bounds of what looks saw: as sure as they say, also where the looks of one step see the same."""

from __future__ import annotations

import numpy as np
import pytest

from pyddpdiag.analyse.looks import between, seen

RUNS = 2000


def test_the_interval_is_newcombes() -> None:
    there, looks = np.zeros(100), np.ones(100)
    there[::10] = 1
    found = seen(there, looks)
    assert (found.share, found.samples) == (pytest.approx(0.1), 10)
    assert found.at_least == pytest.approx(0.0462, abs=5e-4) and found.at_most == pytest.approx(
        0.1976, abs=1e-3
    )
    # Of looks that did not come, a fifth, nobody knows.
    some = seen(there, looks, came=0.8)
    assert some.at_least == pytest.approx(0.8 * found.at_least)
    assert some.at_most == pytest.approx(0.2 + 0.8 * found.at_most)


@pytest.mark.parametrize("together", [1, 6])
def test_no_more_than_a_few_percent_are_called_sure_by_chance(together: int) -> None:
    """Looks at what takes 5%, each by itself or six of them in one step."""
    random = np.random.default_rng(4)
    looks = np.full(600 // together, float(together))
    sure = sum(
        seen(together * (random.random(len(looks)) < 0.05), looks).at_least > 0.05 for _ in range(RUNS)
    )
    assert sure / RUNS < 0.03


def test_one_long_step_proves_nothing() -> None:
    looks = np.ones(60)
    looks[30] = 40.0
    there = np.where(looks > 1, looks, 0.0)
    assert seen(there, looks).share == pytest.approx(0.4, abs=0.01) and seen(there, looks).at_least < 0.05


def test_when_it_begins_and_ends() -> None:
    looks, there = np.ones(300), np.zeros(300)
    there[100:200:4] = 1
    assert between(there, looks) == (101, 196)
    there[::4] = 1
    assert between(there, looks) == (0, 300)


def test_what_was_never_or_always_seen_has_no_bound_on_that_side() -> None:
    few = np.array([1.0])
    assert seen(np.zeros(1), few).at_least == 0.0
    assert seen(few, few).at_most == 1.0
