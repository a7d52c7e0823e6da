"""Links that are slow, or carry nothing, for moments or a while: known by what is busy, confirmed and sent again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.reported import findings
from support.trace_writer import MS, RankWriter
from support.wired import watch

from pyddpdiag.analyse.links.connections import Connection
from pyddpdiag.analyse.links.pairs import links
from pyddpdiag.analyse.links.stalls import Stalls, lost_in, stalls
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.layout import ConnectionValue as V
from pyddpdiag.trace.rows import Int64

READINGS = 60
MOST_KB = 8_000


def course(down: list[int], *, again: int = 100, slow: dict[int, float] | None = None) -> Int64:
    """Readings twice a second; up to those in `down` nothing is confirmed, and `again` segments sent again.

    `slow`: up to these a part of the usual is confirmed.
    """
    size = np.full(READINGS, MOST_KB * 1000)
    for place, part in (slow or {}).items():
        size[place] = int(part * MOST_KB * 1000)
    lost = np.zeros(READINGS, int)
    busy = np.full(READINGS, 450_000)
    if not slow:
        size[down] = 0
    lost[down], busy[down] = again, 500_000
    at = 10**9 + np.arange(READINGS) * 500_000_000
    words = np.zeros((READINGS, len(V)), np.int64)
    words[:, V.AT], words[:, V.BUSY_US], words[:, V.BYTES_ACKED] = at, busy.cumsum(), size.cumsum()
    words[:, V.SEGMENTS_AND_RETRANSMITTED] = lost.cumsum() << 32
    return words


def look(courses: dict[tuple[int, int], Int64]) -> Stalls | None:
    """Of ranks on hosts 10.0.0.<rank + 1>, each with a connection to others."""
    connections = []
    for (rank, peer), each in courses.items():
        ports = f"{1000 + rank * 10 + peer}", f"{1000 + peer * 10 + rank}"
        ends = f"10.0.0.{rank + 1}:{ports[0]}", f"10.0.0.{peer + 1}:{ports[1]}"
        connections.append(Connection(rank, *ends, each))
        connections.append(Connection(peer, *reversed(ends), np.zeros((1, len(V)), np.int64)))
    sidecars = {rank: Sidecar(rank=rank, host=f"host{rank}") for rank in range(4)}
    found = links(connections, sidecars)
    return stalls([link for link in found if link.bytes], connections)


def test_a_link_that_is_down_now_and_then_has_its_times() -> None:
    found = look({(0, 1): course([8, 18, 28, 38, 48]), (1, 2): course([]), (2, 0): course([])})
    assert found is not None
    assert [(link.rank, link.peer) for link in found.links] == [(0, 1)]
    assert (len(found.spans), found.every_s, found.longest_s) == (5, 5.0, 0.5)
    assert found.stalled_s == pytest.approx(2.5) and found.sent_again == 500


def test_links_that_stall_together_are_named_together() -> None:
    """The second one had nothing to send most of the times."""
    found = look({(0, 1): course([8, 18, 28, 38, 48]), (1, 2): course([18, 38]), (2, 0): course([22, 33])})
    assert found is not None
    assert [(link.rank, link.peer) for link in found.links] == [(0, 1), (1, 2)]
    assert len(found.spans) == 5


def test_two_stalls_are_found_and_have_no_rhythm() -> None:
    found = look({(0, 1): course([8, 28]), (1, 2): course([28]), (2, 0): course([40])})
    assert found is not None
    assert (len(found.spans), found.every_s, found.begin_ns) == (2, None, 10**9)
    assert [(link.rank, link.peer) for link in found.links] == [(0, 1), (1, 2)]


def test_a_stall_across_a_reading_is_seen_in_what_both_halves_miss() -> None:
    """0.65 s each; without them the link carries 16 MB in the second."""
    seen = {8: 0.4, 9: 0.3, 28: 0.25, 29: 0.45}
    found = look({(0, 1): course([9, 29], slow=seen), (1, 0): course([])})
    assert found is not None and len(found.spans) == 2
    assert found.spans[0] == (pytest.approx(3.5 + 0.2, abs=0.03), pytest.approx(4.5 - 0.15, abs=0.03))
    assert found.stalled_s == pytest.approx(1.3, abs=0.1)


def test_stalls_without_a_rhythm_have_no_period() -> None:
    found = look({(0, 1): course([4, 10, 31, 34, 55])})
    assert found is not None and found.every_s is None


@pytest.mark.parametrize(
    "innocent",
    [
        # Once is an incident.
        course([8]),
        # The peer does not read: its system confirms what has come, and nothing is sent again.
        course([8, 18, 28, 38, 48], again=0),
        # A slower time is longer than two readings.
        course([9, 29], slow={at: 0.4 for at in (8, 9, 10, 28, 29, 30)}),
    ],
)
def test_what_only_looks_like_it_is_not_found(innocent: Int64) -> None:
    assert look({(0, 1): innocent, (1, 0): course([])}) is None


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


def test_a_link_that_is_slow_for_a_while(tmp_path: Path) -> None:
    """Steps of 100 ms, of which 60 are exposed from step 120 on: a fifth of the run, in which rank 1 sends slowly."""
    writers = [RankWriter(rank, 3) for rank in range(3)]
    now = 2_000 * MS
    for step in range(200):
        exposed = 60 if 120 <= step < 160 else 2
        for writer in writers:
            writer.step(step, now, now, now + 100 * MS)
            writer.backward(step, now, now + (100 - exposed) * MS, now + 100 * MS)
            writer.bucket(step, now + 30 * MS, now + 30 * MS, now + 100 * MS, step=step)
        now += 100 * MS
    for rank, writer in enumerate(writers):
        slow = [4 if 12 <= reading * 0.5 < 16 and rank == 1 else 1 for reading in range(40)]
        watch(
            writer,
            f"10.0.0.{rank + 1}:5",
            f"10.0.0.{(rank - 1) % 3 + 1}:6",
            [(100, 0)] * 40,
            busy=1.0,
            each=slow,
        )
        watch(writer, f"10.0.0.{rank + 1}:6", f"10.0.0.{(rank + 1) % 3 + 1}:5", [(100, 0)], sent=0)
        writer.write(tmp_path)
    found = next(one for one in findings(tmp_path) if one.kind == "slow_link")
    assert (found.rank, found.peer, found.since_step, found.until_step) == (1, 0, 120, 159)
    assert "is slow in steps 120 to 159" in found.message
    assert found.cost_ms is not None and 8.0 < found.cost_ms < 12.0
