"""Buckets through Gloo's workers, a ring's time for other numbers of ranks, and what backward takes from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyddpdiag.plan.ring import Contention, Ring, Sharing, busy_before, fit, fit_ring, replay, work_alone


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


SIZES = np.array([1e6, 1e7])
RING = Ring(0.1, 1e-5)
"""The large bucket, after backward, takes 100.2 ms; the small one, were it alone, 10.2."""


def test_what_is_on_its_way_counts_once() -> None:
    started, ended = np.array([[2.0, 4.0, 20.0]]), np.array([[8.0, 6.0, 25.0]])
    until = np.array([[0.0, 3.0, 10.0, 22.0, 40.0]])
    assert busy_before(started, ended, until).tolist() == [[0.0, 1.0, 6.0, 8.0, 11.0]]


def test_both_are_slower_while_both_go_on() -> None:
    # From 10 on the first bucket and the ranks go half as fast: it ends at 20, they have 5 ms left.
    handed, ended = replay(np.array([[10.0, 20.0]]), np.array([[5.0, 5.0]]), Sharing(0.5, 0.5))
    assert (handed.tolist(), ended.tolist()) == ([25.0], [30.0])
    # The last bucket has the processor to itself, whatever they share before.
    handed, ended = replay(np.array([[7.0]]), np.array([[5.0]]), Sharing(0.2, 0.2))
    assert (handed.tolist(), ended.tolist()) == ([7.0], [12.0])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 10), st.floats(0.1, 10)), min_size=1, max_size=5),
    st.floats(0.3, 1.0),
    st.floats(0.3, 1.0),
)
def test_what_a_replay_gives_is_what_small_pieces_of_time_give(
    buckets: list[tuple[float, float]], wire: float, compute: float
) -> None:
    gaps, work = np.array(buckets).T
    ready = np.cumsum(gaps)
    handed, ended = replay(ready[None], work[None], Sharing(wire, compute))
    piece, now, done, waiting = 0.01, 0.0, 0.0, list(range(len(ready)))
    on_way: dict[int, float] = {}
    stopped = None
    while waiting or on_way:
        while waiting and len(on_way) < 2 and done >= ready[waiting[0]]:
            first = waiting.pop(0)
            on_way[first] = work[first]
        computing = done < ready[-1]
        pace = (wire if computing else 1.0) / max(len(on_way), 1)
        done += piece * (compute if on_way else 1.0)
        on_way = {at: left - pace * piece for at, left in on_way.items() if left > pace * piece}
        now += piece
        if stopped is None and done >= ready[-1]:
            stopped = now
    assert stopped is not None
    assert handed[0] == pytest.approx(stopped, abs=0.1 + 0.02 * len(buckets))
    assert ended[0] == pytest.approx(now, abs=0.1 + 0.02 * len(buckets))


def slowed(pace: float) -> tuple[np.ndarray, np.ndarray]:
    """What the buckets took during and after backward, the small one at that pace."""
    alone = RING.work_ms(SIZES, 2)
    return np.array([alone[0] / pace, 0.0]), np.array([0.0, alone[1]])


@pytest.mark.parametrize("pace", [0.4, 0.6, 0.8])
def test_a_small_bucket_that_takes_long_shares_the_processor(pace: float) -> None:
    during, after = slowed(pace)
    lost = 1.0 - pace
    ring, sharing = fit(SIZES, during, after, 2, Contention(lost * during[0], during[0], 0.2))
    assert ring is not None
    assert sharing.wire == pytest.approx(pace, abs=0.04)
    assert sharing.compute == pytest.approx(max(1.0 - lost, 1.0 - sharing.wire), abs=1e-6)
    assert ring.ms_per_byte == pytest.approx(1e-5, rel=0.01)


LONG = 3.4
"""A round's ms in a ring in which the small bucket, at the pace of 0.6, would be explained by latency alone."""


@pytest.mark.parametrize(
    ("contention", "compute", "round_ms"),
    [
        (Contention(0.5, 17.0, 1.0), 1.0, LONG),
        (Contention(0.5, 17.0, 0.2), 1.0, 0.8),
        (Contention(float("nan"), 17.0, 1.0), 1.0, LONG),
        (Contention(8.5, 0.0, 1.0), 1.0, LONG),
        (Contention(8.5, 17.0, None), 0.5, LONG),
        (Contention(8.5, 17.0, 9.0), 0.5, LONG),
    ],
    ids=[
        *("hardly-waits", "hardly-waits-short-trips", "waits-not-known", "never-both"),
        *("trips-not-known", "long-trips"),
    ],
)
def test_otherwise_rounds_are_long(contention: Contention, compute: float, round_ms: float) -> None:
    during, after = slowed(0.6)
    ring, sharing = fit(SIZES, during, after, 2, contention)
    assert ring is not None and sharing == Sharing(1.0, compute)
    assert ring.round_ms == pytest.approx(round_ms, rel=0.15)
    assert ring.work_ms(SIZES, 2).sum() == pytest.approx((during + after).sum(), rel=1e-6)


def test_buckets_that_were_on_their_way_together_take_what_they_took_together() -> None:
    """The small one got less than half of the link while backward was long over: neither a pace nor a round says so."""
    alone = RING.work_ms(SIZES, 2)
    after = alone + np.array([25.0, -25.0])
    ring, sharing = fit(SIZES, np.array([1.0, 0.0]), after, 2, Contention(0.5, 1.0, 0.3))
    assert ring is not None and ring.round_ms == pytest.approx(0.3)
    assert ring.work_ms(SIZES, 2).sum() == pytest.approx(after.sum() + 1.0)
    assert sharing == Sharing(1.0, 0.5)


def test_buckets_of_one_size_tell_nothing() -> None:
    same = np.array([1e6, 1.1e6])
    assert fit(same, same * 1e-5, same * 0.0, 2, Contention(8.0, 10.0, 0.2)) == (None, Sharing())
