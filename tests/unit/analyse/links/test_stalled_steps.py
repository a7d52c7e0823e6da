"""What stalls cost: the steps at these times against the others."""

from __future__ import annotations

import numpy as np
import pytest

from pyddpdiag.analyse.links.stalls import Stalls, lost_in
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.model.links import LinkStats

BEGIN_NS = 10**12
LINK = LinkStats(
    rank=0,
    peer=1,
    interface="eth0",
    peer_interface="eth0",
    local="10.0.0.1",
    remote="10.0.0.2",
    loopback=False,
    connections=1,
    seconds=30.0,
    bytes=10**9,
    busy_ms_per_mb=40.0,
    min_rtt_ms=0.1,
    segments=10**6,
    retransmitted=10,
    dsack_dups=0,
    loss_fraction=1e-5,
)


def lost(walls_ms: list[float], spans: list[tuple[float, float]], unknown: int | None = None) -> float:
    """Of steps one after the other from the first reading on, and stalls at these seconds since then."""
    walls = np.array(walls_ms)
    steps = np.arange(len(walls))
    ends = BEGIN_NS + (walls.cumsum() * 1e6).astype(np.int64)
    if unknown is not None:
        ends[unknown] = 0
    column = np.column_stack([walls, walls - 1.0])
    none = np.zeros_like(column)
    matrix = StepMatrix((0, 1), steps, column, none, none, none)
    stalls = Stalls((LINK,), tuple(spans), 30.0, BEGIN_NS, 10)
    return lost_in(stalls, matrix, StepEnds(steps, ends))


def test_the_steps_at_the_stalls_are_compared_with_the_others() -> None:
    walls = [200.0] * 60
    walls[20] = walls[40] = 1200.0
    # They end at 5.2 s and 10.2 s; the readings saw half a second of each.
    assert lost(walls, [(4.5, 5.0), (9.5, 10.0)]) == pytest.approx(2.0)
    assert lost(walls, [(4.5, 5.0)]) == pytest.approx(1.0)


def test_long_steps_at_other_times_have_another_reason() -> None:
    walls = [200.0] * 60
    walls[20] = walls[50] = 1200.0
    assert lost(walls, [(8.0, 8.5)]) == pytest.approx(0.5)


def test_what_the_readings_saw_is_the_least() -> None:
    assert lost([200.0] * 60, [(4.5, 5.0), (9.5, 10.0)]) == pytest.approx(1.0)
    walls = [200.0] * 60
    walls[20] = 1200.0
    assert lost(walls, [(4.5, 5.0)], unknown=20) == pytest.approx(0.5)
