"""Buckets through Gloo's two workers, and a ring's time for other numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyddpdiag.plan.ring import Ring, fit_ring
from pyddpdiag.plan.schedule import replay, work_alone


def ends(ready: Sequence[Sequence[float]], work: Sequence[Sequence[float]]) -> list[float]:
    """When the last bucket of each step ends, where nothing is shared but the link."""
    return list(map(float, replay(np.array(ready), np.array(work))[1]))


def test_buckets_that_do_not_meet_take_what_they_take() -> None:
    assert ends([[0.0, 10.0, 20.0]], [[3.0, 4.0, 5.0]]) == [25.0]


def test_two_buckets_share_the_link_and_a_third_waits_for_a_worker() -> None:
    # Two of 4 ms share the link until 8; only then the third begins, alone.
    assert ends([[0.0, 0.0, 0.0]], [[4.0, 4.0, 4.0]]) == [12.0]
    # The first has 2 ms for itself; its other 2 ms take 4 beside the second, which ends alone.
    assert ends([[0.0, 2.0]], [[4.0, 4.0]]) == [8.0]


def test_steps_do_not_touch_each_other() -> None:
    ready, work = [[0.0, 1.0], [5.0, 50.0]], [[2.0, 2.0], [1.0, 1.0]]
    assert ends(ready, work) == [*ends(ready[:1], work[:1]), 51.0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 20)), min_size=1, max_size=8))
def test_the_link_is_never_idle_while_a_bucket_waits(buckets: list[tuple[float, float]]) -> None:
    ready = np.maximum.accumulate([each[0] for each in buckets])
    work = np.array([each[1] for each in buckets])
    free = 0.0
    for at, took in zip(ready, work, strict=True):
        free = max(free, at) + took
    handed, ended = replay(ready[None], work[None])
    assert ended[0] == pytest.approx(free)
    assert handed[0] == pytest.approx(ready[-1])


def test_what_buckets_take_alone_is_found_again() -> None:
    # The second case above, as it would be recorded.
    assert work_alone(np.array([[0.0, 2.0]]), np.array([[6.0, 8.0]])).tolist() == [[4.0, 4.0]]


def test_a_ring_of_other_size_has_more_rounds_and_hardly_more_bytes() -> None:
    sizes = np.array([1e5, 1e6, 4e6])
    fitted = fit_ring(sizes, Ring(0.5, 1e-5).work_ms(sizes, 2), 2)
    assert fitted is not None
    assert (fitted.round_ms, fitted.ms_per_byte) == (pytest.approx(0.5), pytest.approx(1e-5))
    assert fitted.work_ms(sizes, 8) == pytest.approx(14 * 0.5 + 14 / 8 * sizes * 1e-5)
    assert fitted.work_ms(sizes, 1).tolist() == [0.0, 0.0, 0.0]
    assert fit_ring(np.array([1e6, 1.1e6]), np.array([3.0, 3.1]), 2) is None
