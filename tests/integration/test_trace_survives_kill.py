"""A writer that is killed at any moment loses nothing it had published. At length: tests/attack."""

import sys
import time
from pathlib import Path

import pytest
from support.killed_writer import WRAPPING, check_whole, kill_a_roomy_one, kill_a_wrapping_one
from support.trace_victim import start

from pyddpdiag.trace.reader import read_trace

# Windows has no forkserver: each victim imports torch again.
KILLS = 2 if sys.platform == "win32" else 6


@pytest.mark.parametrize("seed", range(KILLS))
def test_every_published_record_is_there(tmp_path: Path, seed: int) -> None:
    assert kill_a_roomy_one(tmp_path, seed) > 0


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_ring_that_has_wrapped(tmp_path: Path, seed: int) -> None:
    assert kill_a_wrapping_one(tmp_path, seed) > 0


def test_overwritten_records_are_counted_exactly(tmp_path: Path) -> None:
    """Killed at rest, there is no half-done record and the numbers must agree to the last one."""
    capacity = WRAPPING // 128
    # Too few steps for a sum of steps, which the recorder's own thread would write uncounted.
    process, path, counts = start(tmp_path, WRAPPING, most_steps=15)
    try:
        while sum(counts.written()) < 3 * capacity:
            time.sleep(0.001)
        counts.stop()
        before: list[int] = []
        while before != counts.written():
            before = counts.written()
            time.sleep(0.2)
    finally:
        process.kill()
        process.join(30)
    trace = read_trace(path)
    check_whole(trace)
    header = trace.header
    assert trace.torn == 0
    assert len(trace) == capacity
    assert header.tickets == sum(before) + header.skipped
    assert header.overwritten == sum(before) - capacity
