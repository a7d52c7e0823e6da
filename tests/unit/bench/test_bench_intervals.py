"""Intervals: two runs of the same thing are no difference, a real difference is seen."""

import time

import numpy as np
import pytest

from pyddpdiag.bench.intervals import Estimate, estimate, ratio_in_pairs, ratio_of_rounds, verdict


def real_rounds(count: int) -> list[float]:
    """Seconds of a piece of real work, on this machine as it is now."""
    data = np.random.default_rng(0).standard_normal(20_000)
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        np.sort(data)
        found.append(time.perf_counter() - begin)
    return found


def test_real_rounds_against_themselves_are_no_difference() -> None:
    measured = np.array(real_rounds(400))
    order = np.random.default_rng(1)
    words = []
    for _ in range(100):
        picked = order.permutation(len(measured))
        # In their own order, as in a run.
        first, second = np.sort(picked[:30]), np.sort(picked[30:60])
        ratio = ratio_of_rounds(measured[first].tolist(), measured[second].tolist())
        words.append(verdict(ratio, 30))
    assert words.count("faster") + words.count("slower") <= 5, words


@pytest.mark.parametrize(("times", "word"), [(1.5, "slower"), (1 / 1.5, "faster")])
def test_a_real_difference_is_seen(times: float, word: str) -> None:
    base = np.random.default_rng(2).normal(1.0, 0.05, 30)
    assert verdict(ratio_of_rounds((times * base).tolist(), base.tolist()), 30) == word


@pytest.mark.parametrize(
    ("low", "high", "margin", "word"),
    [
        (0.96, 1.1, 0.05, "no difference"),
        (0.42, 0.97, 0.05, "cannot tell"),
        (0.9, 1.3, 0.05, "cannot tell"),
        (1.06, 3.0, 0.05, "slower"),
        (0.81, 1.24, 0.25, "no difference"),
    ],
)
def test_no_difference_is_said_only_where_one_is_ruled_out(
    low: float, high: float, margin: float, word: str
) -> None:
    assert verdict(Estimate((low * high) ** 0.5, low, high), 30, margin) == word


def test_a_drift_widens_the_interval() -> None:
    generator = np.random.default_rng(3)
    noise = generator.normal(1.0, 0.02, 64)
    drifting = np.repeat(generator.normal(1.0, 0.2, 8), 8) * noise

    def width(values: np.ndarray) -> float:  # type: ignore[type-arg]
        found = ratio_of_rounds(values.tolist(), noise.tolist())
        return found.high - found.low

    shuffled = generator.permutation(drifting)
    assert width(drifting) > width(shuffled)


def test_too_few_rounds_tell_nothing() -> None:
    assert verdict(ratio_of_rounds([9.0] * 4, [1.0] * 4), 4) == "cannot tell"
    with pytest.raises(ValueError, match="no rounds"):
        estimate([])
    with pytest.raises(ValueError, match="no rounds"):
        ratio_of_rounds([], [1.0])


def test_pairs_cancel_what_hits_both() -> None:
    generator = np.random.default_rng(5)
    machine = np.exp(np.cumsum(generator.normal(0, 0.2, 40)))  # wanders by a factor
    base = machine * generator.normal(1.0, 0.03, 40)
    other = 1.2 * machine * generator.normal(1.0, 0.03, 40)
    paired = ratio_in_pairs(other.tolist(), base.tolist(), 0.99)
    assert 1.15 < paired.low < paired.median < paired.high < 1.25
    unpaired = ratio_of_rounds(other.tolist(), base.tolist())
    assert unpaired.high - unpaired.low > 5 * (paired.high - paired.low)
    half = ratio_in_pairs(other.tolist(), base.tolist(), 0.5)
    assert half.high - half.low < paired.high - paired.low
    with pytest.raises(ValueError, match="no rounds"):
        ratio_in_pairs([], [])
