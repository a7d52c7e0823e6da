"""The bounds that decide about links: each of these tests fails if its bound is a fifth larger or smaller."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyddpdiag.analyse.links.connections import Connection, losses
from pyddpdiag.analyse.links.interface_use import OtherTraffic, detours, other_traffic, single_flow
from pyddpdiag.analyse.links.link_faults import LinkFaults
from pyddpdiag.analyse.links.stalls import Stalls, stalls
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Interface, Sidecar
from pyddpdiag.trace.layout import ConnectionValue as V

MB = 1_000_000
SIDECARS = {rank: Sidecar(rank=rank, host=f"host{rank}") for rank in range(3)}


def link(rank: int, peer: int, **values: Any) -> LinkStats:
    """A sound one; its round trip is 1 ms, and a bucket's time on the wire 20 ms."""
    sound: dict[str, Any] = {
        "bytes": 100 * MB,
        "busy_ms_per_mb": 10.0,
        "min_rtt_ms": 0.02,
        "segments": 60_000,
        "retransmitted": 0,
        "dsack_dups": 0,
        "loss_fraction": 0.0,
        "floor_rtt_ms": 1.0,
        "low_rtt_ms": 1.0,
        "usual_rtt_ms": 1.0,
    }
    names = {"interface": "eth0", "peer_interface": "eth0", "loopback": False}
    ends = {"local": f"10.0.0.{rank + 1}", "remote": f"10.0.0.{peer + 1}"}
    return LinkStats(
        rank=rank, peer=peer, connections=1, seconds=30.0, **names, **ends, **{**sound, **values}
    )  # type: ignore[arg-type]


def faults(*other: OtherTraffic, at: int = 2, wire_ms: float = 20.0, **values: Any) -> LinkFaults:
    """A ring of three hosts, of which the links of one (`at` 2: of that pair only the sender) are not sound."""
    bucket: Any = SimpleNamespace(
        first_steps_only=False, bytes=1, times=SimpleNamespace(wire_ms=SimpleNamespace(median=wire_ms))
    )
    ring = [link(0, 2), link(1, 0, **values), link(2, 1, **(values if at == 1 else {}))]
    return LinkFaults(ring, [bucket], SIDECARS, other)


@pytest.mark.parametrize(("wire_ms", "far"), [(250.0, 2), (400.0, 0)])
def test_a_way_explains_no_more_than_its_messages_take(wire_ms: float, far: int) -> None:
    """The queue before a slow link may never empty: its round trip is long always, and little of the bucket's time."""
    found = faults(at=1, low_rtt_ms=20.0, usual_rtt_ms=21.0, busy_ms_per_mb=60.0, wire_ms=wire_ms)
    # Four messages in a row of half a round trip, each of up to four round trips (`SLOW_START`): half of 320 ms.
    assert (len(found.delayed), len(found.slow)) == (far, 2 - far)


@pytest.mark.parametrize(("times", "slow"), [(1.88, 0), (2.0, 1)])
def test_rate(times: float, slow: int) -> None:
    """Of `RATE` and `EVIDENCE`: exp(0.2 * 3.32) = 1.94."""
    assert len(faults(busy_ms_per_mb=10.0 * times, usual_rtt_ms=None).slow) == slow


def test_a_queue_alone_is_no_low_rate() -> None:
    assert not faults(usual_rtt_ms=100.0).slow
    assert len(faults(usual_rtt_ms=100.0, busy_ms_per_mb=14.0).slow) == 1


def test_both_directions_between_two_hosts_have_one_round_trip() -> None:
    one = LinkFaults([link(0, 1), link(1, 0, busy_ms_per_mb=22.0)], [], SIDECARS)
    assert [each.rank for each in one.slow] == [1]


@pytest.mark.parametrize(("low", "far"), [(3.0, 0), (3.4, 2)])
def test_round_trip(low: float, far: int) -> None:
    """Of `TRIP` and `EVIDENCE`: exp(0.35 * 3.32) = 3.19."""
    assert len(faults(at=1, low_rtt_ms=low, usual_rtt_ms=low, busy_ms_per_mb=14.0).delayed) == far


@pytest.mark.parametrize(("busy", "far"), [(10.9, 0), (11.1, 2)])
def test_a_way_keeps_a_link_busy_and_a_queue_is_there_all_the_same(busy: float, far: int) -> None:
    """Busy for a tenth longer than others, at least: 1.35 to 8 times as long behind delays of 2.5 to 15 ms, and 1.02
    times where the queues of a network of 18 Mbit/s never emptied."""
    assert len(faults(at=1, low_rtt_ms=10.0, usual_rtt_ms=10.0, busy_ms_per_mb=busy).delayed) == far


@pytest.mark.parametrize(("usual", "far"), [(15.2, 2), (17.0, 0)])
def test_what_never_goes_away(usual: float, far: int) -> None:
    assert len(faults(at=1, low_rtt_ms=10.0, usual_rtt_ms=usual, busy_ms_per_mb=19.0).delayed) == far


def test_a_link_that_others_fill_is_not_far() -> None:
    """Neither by the least in these readings nor by the system's own, unless it is nearly always as long."""
    other = OtherTraffic(1, "eth0", True, 200 * MB, 100 * MB)
    long: dict[str, Any] = {"at": 1, "low_rtt_ms": 19.0, "usual_rtt_ms": 20.0, "busy_ms_per_mb": 28.0}
    assert faults(**long).delayed and not faults(other, **long).delayed
    assert faults(OtherTraffic(1, "eth0", True, 40 * MB, 100 * MB), **long).delayed
    assert faults(at=1, min_rtt_ms=11.0, usual_rtt_ms=20.0).delayed
    assert not faults(other, at=1, min_rtt_ms=11.0, usual_rtt_ms=20.0).delayed
    assert faults(other, at=1, min_rtt_ms=15.0, usual_rtt_ms=20.0).delayed


@pytest.mark.parametrize(("trip", "far"), [(1.8, 0), (2.2, 1)])
def test_messages(trip: float, far: int) -> None:
    """Four messages, of half a round trip each, are to take a fifth of the 20 ms on the wire."""
    assert len(faults(min_rtt_ms=trip).delayed) == far


@pytest.mark.parametrize(("lost", "lossy"), [(147, 0), (153, 1)])
def test_losses(lost: int, lossy: int) -> None:
    """Of `LOST`, `SEVERAL` and `EVIDENCE`: 90 of 60,000 cost little."""
    assert len(faults(loss_fraction=lost / 60_000).lossy) == lossy


@pytest.mark.parametrize(
    ("how", "lossy"),
    [
        ({"loss_spread": 0.76}, 0),
        ({"loss_spread": 0.84}, 1),
        ({"loss_rtt_share": 1.25}, 0),
        ({"loss_rtt_share": 1.15}, 1),
    ],
)
def test_losses_of_a_queue(how: dict[str, float], lossy: int) -> None:
    assert len(faults(loss_fraction=0.01, **how).lossy) == lossy


def test_losses_beside_a_queue_that_loses_more_are_of_queues() -> None:
    ring = [link(0, 2), link(1, 0, loss_fraction=0.03, loss_spread=0.5)]
    for mine, lossy in ((0.02, 0), (0.04, 1)):
        assert (
            len(LinkFaults([*ring, link(2, 1, loss_fraction=mine, loss_spread=1.0)], [], SIDECARS).lossy)
            == lossy
        )


@pytest.mark.parametrize(
    ("most", "carried", "some"), [(100, 4.5, 2), (100, 5.5, 3), (2, 0.9, 2), (2, 1.1, 3)]
)
def test_what_is_part_of_the_ring(most: float, carried: float, some: int) -> None:
    ring = [link(rank, rank - 1 if rank else 2, bytes=int(most * MB)) for rank in range(2)]
    assert len(LinkFaults([*ring, link(2, 1, bytes=int(carried * MB))], [], SIDECARS).carrying) == some


@pytest.mark.parametrize(("carried", "some"), [(133, 0), (137, 1)])
def test_other_traffic(carried: int, some: int) -> None:
    """A tenth of the 100 MB are headers, and a quarter is worth a word."""
    sidecar = Sidecar(rank=0, host="host0", traffic={"eth0": {"sent": carried * MB}})
    assert len(other_traffic([link(0, 1)], {**SIDECARS, 0: sidecar})) == some


@pytest.mark.parametrize(("second", "alone"), [(45, True), (55, False)])
def test_another_place_to_look_at(second: int, alone: bool) -> None:
    found = [OtherTraffic(rank, "eth0", True, other, 100) for rank, other in ((0, 100), (1, second))]
    assert (single_flow(found) is not None) is alone


@pytest.mark.parametrize(
    ("used", "other", "why"),
    [(1_000, 1_900, None), (1_000, 2_100, "slower"), (7_200, 8_500, None), (8_800, 8_500, "idle")],
)
def test_interfaces(used: int, other: int, why: str | None) -> None:
    """The link carries 800 Mbit/s."""
    speeds = {"eth0": used, "eth1": other}
    sidecars = {
        rank: Sidecar(
            rank=rank,
            host=f"host{rank}",
            interfaces={
                name: Interface((f"10.0.{place}.{rank + 1}/24",), speed_mbit=speed)
                for place, (name, speed) in enumerate(speeds.items())
            },
        )
        for rank in range(2)
    }
    assert [each.why for each in detours([link(0, 1)], sidecars)] == ([why] if why else [])


@pytest.mark.parametrize(("size", "spread"), [(60_000, 1.0), (70_000, 0.5)])
def test_what_is_traffic(size: int, spread: float) -> None:
    """Every second moment loses nothing, and carries so much."""
    words = np.zeros((17, 8), np.int64)
    words[1:, V.BYTES_ACKED] = np.cumsum([MB, size] * 8)
    words[1:, V.SEGMENTS_AND_RETRANSMITTED] = np.cumsum([6, 0] * 8) << 32
    assert losses(words)[1] == spread


def _stalls(parts: dict[int, float], everywhere: int = 0, took_s: float = 0.5) -> bool:
    """Readings twice a second, or `took_s` before these; up to these a part of what is usual is carried, and 100
    segments are sent again."""
    size, lost = np.full(60, 8 * MB), np.full(60, everywhere)
    for place, part in parts.items():
        size[place], lost[place] = int(part * 8 * MB), 100
    took = np.full(60, 500_000)
    took[list(parts)] = int(took_s * 1e6)
    words = np.zeros((60, len(V)), np.int64)
    words[:, V.AT] = 10**9 + took.cumsum() * 1000
    words[:, V.BUSY_US], words[:, V.BYTES_ACKED] = took.cumsum(), size.cumsum()
    words[:, V.SEGMENTS_AND_RETRANSMITTED] = lost.cumsum() << 32
    connection = Connection(0, "10.0.0.1:1", "10.0.0.2:2", words)
    return stalls([link(0, 1)], [connection]) is not None


@pytest.mark.parametrize(
    ("missing", "found"),
    [((0.8,), False), ((0.9,), True), ((0.36, 0.66), False), ((0.44, 0.62), True)],
    ids=str,
)
def test_what_a_stall_leaves(missing: tuple[float, ...], found: bool) -> None:
    parts = {at + place: 1 - part for at in (8, 28) for place, part in enumerate(missing)}
    assert _stalls(parts) is found


@pytest.mark.parametrize(("everywhere", "found"), [(20, False), (11, True)])
def test_where_a_stall_sends_again(everywhere: int, found: bool) -> None:
    """44% and 56% of it is sent at the stalls."""
    assert _stalls(dict.fromkeys((8, 18, 28, 38, 48), 0.0), everywhere) is found


@pytest.mark.parametrize(("took_s", "found"), [(1.8, True), (2.2, False)])
def test_where_a_stall_may_hide(took_s: float, found: bool) -> None:
    assert _stalls({8: 0.0, 28: 0.0}, took_s=took_s) is found


@pytest.mark.parametrize(("late", "found"), [(0.45, True), (0.55, False)])
def test_rhythm(late: float, found: bool) -> None:
    begin = np.cumsum([5.0 - late, 5.0 + late, 5.0 - late, 5.0 + late, 5.0])
    spans = tuple((float(at), float(at) + 0.5) for at in (0.0, *begin))
    assert (Stalls((), spans, 30.0, 0, 0).every_s is not None) is found
