from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reported import report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.pipeline import load_report


def hand_made(folder: Path, *, size: int = 4_000_000) -> None:
    """One bucket on two ranks, 10 ms late on rank 1; the numbers below can be done in one's head.

    rank 0: enqueued 100, started 100, ended 118; backward ends at 109.
    rank 1: enqueued 110, started 113, ended 120; backward ends at 115.
    """
    for rank, (enqueued, started, ended, finalize) in enumerate(((100, 100, 118, 109), (110, 113, 120, 115))):
        writer = RankWriter(rank, 2)
        writer.bucket(0, enqueued * MS, started * MS, ended * MS, bytes=size, step=0)
        writer.backward(0, 90 * MS, finalize * MS, 121 * MS)
        writer.write(folder)


def test_every_number_of_one_occurrence(tmp_path: Path) -> None:
    hand_made(tmp_path)
    bucket = load_report(tmp_path).buckets[0]
    times = bucket.times
    assert (bucket.count, bucket.judged, bucket.incomplete, bucket.bytes) == (1, 1, 0, 4_000_000)
    assert times.arrival_ms.median == 10.0  # 110 - 100
    assert times.queue_ms.median == 3.0  # 113 - 110
    assert times.wire_ms.median == 7.0  # 120 - 113
    assert times.total_ms.median == 20.0  # 120 - 100
    assert times.algbw_gbps.median == pytest.approx(4e6 / 7e6)  # bytes per nanosecond
    assert times.busbw_gbps.median == times.algbw_gbps.median  # 2 * (2 - 1) / 2 = 1
    # rank 0: 9 of 18 ms before 109; rank 1: 5 of 10 ms before 115.
    assert times.hidden_fraction.median == pytest.approx(0.5)
    assert bucket.last_arrivals == {1: 1}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), min_size=1, max_size=5))
def test_parts_are_an_exact_partition(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int, int]]
) -> None:
    """Whatever the times are (in order within a rank): arrival + queue + wire = total, none negative."""
    folder = tmp_path_factory.mktemp("run")
    for rank, (begin, queue, wire) in enumerate(spans):
        writer = RankWriter(rank, len(spans), clock_identity=b"one")
        enqueued = 10**9 + begin
        writer.bucket(0, enqueued, enqueued + queue, enqueued + queue + wire)
        writer.write(folder, sidecar=False)
    times = load_report(folder).buckets[0].times
    parts = [times.arrival_ms.median, times.queue_ms.median, times.wire_ms.median]
    assert all(part is not None and part >= 0 for part in parts)
    assert sum(part or 0 for part in parts) == pytest.approx(times.total_ms.median, abs=1e-9)


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0.0), (2, 1.0), (3, 4 / 3), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_factor(tmp_path: Path, ranks: int, factor: float) -> None:
    for rank in range(ranks):
        writer = RankWriter(rank, ranks)
        writer.bucket(0, 10 * MS, 10 * MS, 12 * MS, bytes=6_000_000)
        writer.write(tmp_path)
    times = load_report(tmp_path).buckets[0].times
    assert times.algbw_gbps.median == pytest.approx(3.0)
    assert times.busbw_gbps.median == pytest.approx(3.0 * factor)


def test_without_start_times_the_split_is_not_known(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10 * MS, 0, 15 * MS)
        writer.write(tmp_path)
    times = load_report(tmp_path).buckets[0].times
    assert (times.arrival_ms.median, times.total_ms.median) == (0.0, 5.0)
    assert times.queue_ms.median is times.wire_ms.median is times.algbw_gbps.median is None
    assert times.hidden_fraction.median is None


def test_instant_transfer_has_no_bandwidth(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 10, 20, 20)
    times = report_of([writer], tmp_path).buckets[0].times
    assert (times.wire_ms.median, times.algbw_gbps.median) == (0.0, None)


@pytest.mark.parametrize("fate", ["in flight", "failed", "absent"])
def test_occurrences_that_did_not_end_well_are_not_in_the_medians(tmp_path: Path, fate: str) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10 * MS, 11 * MS, 12 * MS)
        if rank == 0 or fate != "absent":
            bad = rank == 1
            writer.bucket(
                1,
                20 * MS,
                21 * MS,
                0 if bad and fate == "in flight" else 900 * MS,
                state=2 if bad and fate == "in flight" else 3,
                flags=1 if bad and fate == "failed" else 0,
            )
        writer.write(tmp_path)
    bucket = load_report(tmp_path).buckets[0]
    assert (bucket.count, bucket.incomplete) == (1, 1)
    assert bucket.times.total_ms.median == 2.0


def test_medians_and_percentiles_are_numpys(tmp_path: Path) -> None:
    totals = np.random.default_rng(0).integers(1, 1000, 37)
    writer = RankWriter()
    for sequence, total in enumerate(totals.tolist()):
        begin = (sequence + 1) * 10**12
        writer.bucket(sequence, begin, begin, begin + total * MS, step=7)
    total_ms = report_of([writer], tmp_path).buckets[0].times.total_ms
    assert total_ms.median == np.median(totals)
    assert total_ms.p95 == pytest.approx(np.percentile(totals, 95))


def test_tie_in_arrival_blames_nobody(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10, 20, 30)
        writer.write(tmp_path)
    report = load_report(tmp_path)
    assert report.buckets[0].last_arrivals == {}
    assert [rank.arrivals for rank in report.ranks] == [0, 0]


def test_lateness_within_the_clocks_uncertainty_blames_nobody(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2, clock_identity=b"clock %d" % rank)
        writer.bucket(0, (100 + rank) * MS, (100 + rank) * MS, 110 * MS)
        writer.write(tmp_path)
    assert load_report(tmp_path).buckets[0].last_arrivals == {}
