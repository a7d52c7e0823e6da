"""Files are hostile: whatever their bytes, a report or one clear error comes, soon, in little memory."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import own_clock
from support.attack import survive
from support.trace_writer import RankWriter, header_page, record_dtype

pytestmark = pytest.mark.slow
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@SLOW
@given(st.binary(max_size=9000))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "rank_0.ddptrace").write_bytes(content)
    assert survive(folder) is None


@SLOW
@given(st.binary(min_size=64, max_size=4000), st.integers(1, 40), st.sampled_from("<>"))
def test_random_records_behind_a_sound_header(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, capacity: int, order: str
) -> None:
    folder = tmp_path_factory.mktemp("run")
    page = header_page(order, capacity=capacity, tickets=2**63)
    (folder / "rank_0.ddptrace").write_bytes(bytes(page) + content)
    assert survive(folder) is not None


@SLOW
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_random_fields_in_published_records(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ranks: int
) -> None:
    """Records that pass as published, full of small, huge and equal numbers, on several clocks."""
    random = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("run")
    for rank in range(ranks):
        count = int(random.integers(1, 60))
        slots = np.zeros(count, record_dtype())
        slots["word"] = (np.arange(count) + 1) << 2 | random.integers(1, 4, count)
        slots["kind"] = random.integers(0, 12, count)
        for name in ("dtype", "reduce_op"):
            slots[name] = random.integers(0, 256, count)
        for name in ("flags", "step", "module", "index", "thread"):
            slots[name] = random.choice([0, 1, 2, 3, 5, 2**31, 2**32 - 1], count)
        for name in ("group", "sequence", "reference", "bytes"):
            slots[name] = random.choice(np.array([0, 1, 2, 3, 7, 2**63, 2**64 - 1], np.uint64), count)
        slots["times"] = random.choice([0, 0, 1, 2, 10**9, 10**12, 2**60, 2**61], (count, 8))
        page = header_page(
            rank=rank,
            world_size=ranks,
            capacity=count,
            tickets=count,
            closed=int(random.integers(2)),
            # Also this machine's own clock: then the reader looks for the process and measures up to now.
            clock_identity=(b"clock 0", b"clock 1", own_clock.IDENTITY)[random.integers(3)],
            clock_name=own_clock.NAME,
            pid=(0, 1, os.getpid(), 2**31, 2**64 - 1)[random.integers(5)],
            monotonic_ns=int(random.choice([0, 10**9, 2**61])),
            wall_ns=int(random.choice([0, 10**18, 2**61, 2**63 - 1])),
        )
        (folder / f"rank_{rank}.ddptrace").write_bytes(bytes(page) + slots.tobytes())
    assert survive(folder) is not None


def _each_on_its_own(folder: Path, count: int) -> float:
    """Two ranks of so many records, each in a group, step and bucket of its own; processor time of their report."""
    folder.mkdir()
    slots = np.zeros(count, record_dtype())
    numbers = np.arange(count, dtype=np.uint64)
    slots["word"] = (numbers + np.uint64(1)) << np.uint64(2) | np.uint64(3)
    slots["kind"] = 1
    for name in ("group", "sequence", "reference", "step", "module"):
        slots[name] = numbers
    slots["flags"] = 1
    slots["times"][:, :4] = 1 + np.arange(count)[:, None]
    for rank in range(2):
        page = header_page(rank=rank, world_size=2, capacity=count, tickets=count)
        (folder / f"rank_{rank}.ddptrace").write_bytes(bytes(page) + slots.tobytes())
    # Other load on the machine is no fault.
    begin = time.process_time()
    report = survive(folder)
    took = time.process_time() - begin
    assert report is not None
    assert len(report.errors) == 1000 and report.errors_total == 2 * count
    assert len(report.buckets) == min(count, 10_000)
    return took


def test_every_record_in_its_own_group_step_and_bucket(tmp_path: Path) -> None:
    """The worst for anything that loops over groups, buckets or steps: the time does not grow with their square.

    Compared in one run, and again if something held up the longer part. 8 times the records take 10 to 17 times as
    long, as they fit the processor's caches no more; with their square it would be 64.
    """
    for attempt in range(3):
        few = _each_on_its_own(tmp_path / f"few{attempt}", 2_000)
        if _each_on_its_own(tmp_path / f"many{attempt}", 16_000) < 30 * few:
            return
    pytest.fail("the time grows with the square of the records")


def test_error_parts_without_end(tmp_path: Path) -> None:
    writer = RankWriter(capacity=4096)
    ticket = writer.bucket(0, 1, 2, 3, flags=1)
    for index in range(4000):
        writer.add(6, text=b"A" * 64, reference=ticket, index=index)
    writer.write(tmp_path)
    report = survive(tmp_path)
    assert report is not None and len(report.errors[0].text) <= 4096
