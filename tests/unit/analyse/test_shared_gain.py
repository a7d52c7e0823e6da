"""The model of what shared memory would save."""

from dataclasses import replace

import pytest

from pyddpdiag.analyse.bounds import BYTES_SHARE, LATENCY_SHARE
from pyddpdiag.analyse.wire_fit import shared_gain_ms
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.stats import BucketTimes, Stat

MB = 10**6


def bucket(amount: int, wire_ms: float | None, **fields: object) -> BucketStats:
    times = BucketTimes(wire_ms=Stat(wire_ms, wire_ms), total_ms=Stat(wire_ms, wire_ms))
    some = BucketStats("7", 0, (), amount, "float32", "float32", "0", 2, 20, 20, 0, 0, 20, False, 1.0, times)
    return replace(some, **fields)  # type: ignore[arg-type]


def test_bytes_and_latency_are_distinguished_by_the_fit() -> None:
    # 1 ms for each bucket, and 2 ms for each megabyte.
    buckets = [bucket(MB, 3.0), bucket(4 * MB, 9.0), bucket(10 * MB, 21.0)]
    saved = 3 * 1.0 * (1 - LATENCY_SHARE) + 15 * 2.0 * (1 - BYTES_SHARE)
    assert shared_gain_ms(1000.0, buckets) == pytest.approx(saved)


def test_what_is_hidden_stays_hidden() -> None:
    buckets = [bucket(MB, 3.0), bucket(4 * MB, 9.0), bucket(10 * MB, 21.0)]
    # The last bucket, which may be the smallest, is not hidden.
    least = LATENCY_SHARE * 1.0 + BYTES_SHARE * 2.0
    assert shared_gain_ms(5.0, buckets) == pytest.approx(5.0 - least)
    assert shared_gain_ms(0.1, buckets) == 0.0


def test_nothing_is_reported_where_nothing_is_known() -> None:
    assert shared_gain_ms(10.0, []) is None
    assert shared_gain_ms(10.0, [bucket(MB, None)]) is None
    assert shared_gain_ms(10.0, [bucket(MB, 3.0, shared_memory=True), bucket(MB, 3.0)]) is None
