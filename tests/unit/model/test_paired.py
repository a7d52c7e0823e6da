"""Ratios of few pairs, and when the best of several settings is known."""

from __future__ import annotations

import math
import random

import pytest

from pyddpdiag.model.paired import Interval, best_is_known, ratio_of_pairs


def test_the_interval_holds_the_truth_in_95_of_100_cases_with_three_pairs() -> None:
    draw = random.Random(3)
    hits = 0
    for _ in range(4000):
        found = ratio_of_pairs([0.8 * math.exp(draw.gauss(0, 0.1)) for _ in range(3)])
        assert found is not None
        hits += found.low <= 0.8 <= found.high
    # Of 4000 draws, the share that is found lies within 1.1% of the true one in 999 of 1000 cases.
    assert 0.938 < hits / 4000 < 0.962


def test_one_pair_tells_nothing_of_its_error() -> None:
    assert ratio_of_pairs([0.5]) is None and ratio_of_pairs([]) is None


def test_pairs_that_agree_leave_no_doubt() -> None:
    found = ratio_of_pairs([0.5, 0.5, 0.5])
    assert found is not None
    assert (found.low, found.middle, found.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("intervals", "known"),
    [
        ([], True),
        ([Interval(0.5, 0.45, 0.55)], True),
        ([Interval(0.9, 0.7, 1.1)], False),  # it may save 30%, or nothing
        ([Interval(1.01, 0.99, 1.03)], True),  # nothing to gain, as far as 2% matter
        ([Interval(0.5, 0.45, 0.55), Interval(0.52, 0.46, 0.58)], False),
        ([Interval(0.5, 0.48, 0.51), Interval(0.52, 0.50, 0.54)], True),
        ([Interval(1.2, 1.1, 1.3), Interval(1.0, 0.99, 1.01)], True),
    ],
)
def test_the_best_is_known_when_nothing_else_can_save_2_percent_more(
    intervals: list[Interval], known: bool
) -> None:
    assert best_is_known(intervals) == known
