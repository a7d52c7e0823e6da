"""Links that carry nothing for moments: known by what is busy, confirmed and sent again."""

from __future__ import annotations

import numpy as np
import pytest

from pyddpdiag.analyse.links.connections import Connection, links
from pyddpdiag.analyse.links.stalls import Stalls, stalls
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
