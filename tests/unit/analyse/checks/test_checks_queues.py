"""Checks of links by the round trips while they carry: queues, long ways and lossy lines are distinguished."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from support.trace_writer import write_training
from support.wired import only, watch

from pyddpdiag.pipeline import load_report


def watched_ring(
    folder: Path,
    moments: Mapping[tuple[int, int], Sequence[tuple[int, int]]],
    busy: Mapping[tuple[int, int], float] | None = None,
    segments: int = 7000,
    light: Collection[tuple[int, int]] = (),
) -> None:
    """Three ranks with readings of the links between them: the round trip and the losses of each moment.

    `busy`: how many times as long as the others a link is busy for what it sends. `light` links carry small messages.
    """
    writers = write_training(folder, world_size=3, steps=20, wire_ms=14.0)
    for (rank, peer), readings in moments.items():
        ends = f"10.0.0.{rank + 1}:{5000 + 10 * rank + peer}", f"10.0.0.{peer + 1}:{6000 + 10 * peer + rank}"
        much = (25, 1200) if (rank, peer) in light else (segments, 10**7)
        watch(writers[rank], *ends, readings, (busy or {}).get((rank, peer), 1.0), *much)
        writers[peer].connection_name("|".join(reversed(ends)))
        nothing = dict.fromkeys(
            ("bytes_sent", "bytes_acked", "busy_us", "segments", "retransmitted", "dsack_dups"), 0
        )
        writers[peer].reading("|".join(reversed(ends)), 2 * 10**9, **nothing)
    for writer in writers:
        writer.write(folder)


RING = ((0, 2), (1, 0), (2, 1))
CALM = [(900, 0), (2_000, 0)] * 8


def test_losses_at_any_moment_are_the_lines(tmp_path: Path) -> None:
    faulty = [(1_000, 200), (2_000, 200)] * 8
    watched_ring(tmp_path, {(0, 2): CALM, (1, 0): faulty, (2, 1): faulty})
    found = only(tmp_path)
    assert (found.kind, found.rank) == ("packet_loss", 1)


def test_losses_when_the_queue_is_full_are_no_fault_of_the_line(tmp_path: Path) -> None:
    full = [(1_000, 0), (1_000, 0), (1_000, 0), (90_000, 800)] * 4
    watched_ring(tmp_path, {(0, 2): CALM, (1, 0): full, (2, 1): full})
    assert only(tmp_path).kind == "exposed_communication"


def test_losses_without_end_are_the_lines_though_long_round_trips_lose_a_little_more(tmp_path: Path) -> None:
    """What chance makes of it: 1.18 times the usual round trip, where a queue that overflows may have 1.15."""
    faulty = [(950, 120), (950, 120), (950, 120), (2_000, 600)] * 8
    watched_ring(tmp_path, {(0, 2): CALM * 2, (1, 0): faulty, (2, 1): faulty})
    report = load_report(tmp_path)
    shares = [link.loss_rtt_share for link in report.links if link.loss_rtt_share]
    assert shares and all(1.15 < share < 1.27 for share in shares)
    found = report.verdict.findings[0]
    assert (found.kind, found.rank) == ("packet_loss", 1)


def test_losses_at_one_moment_are_no_lines(tmp_path: Path) -> None:
    once = [(2_000, 0), (2_000, 40), *CALM]
    watched_ring(tmp_path, {(0, 2): CALM, (1, 0): once, (2, 1): CALM}, segments=350)
    lossy = next(link for link in load_report(tmp_path).links if link.retransmitted)
    assert lossy.loss_fraction is not None and lossy.loss_fraction > 0.005
    assert only(tmp_path).kind == "exposed_communication"


def test_rare_losses_beside_a_queue_that_is_always_full_are_the_queues(tmp_path: Path) -> None:
    """All links are slow alike, so none is slower than others; each loss is at no longer round trip than usual."""
    full = [(20, 0), (6_000, 0), *[(41_000, 1), (43_000, 0), (42_000, 1), (43_000, 0)] * 30]
    watched_ring(tmp_path, dict.fromkeys(RING, tuple(full)), segments=100)
    links = [link for link in load_report(tmp_path).links if link.bytes]
    assert len(links) == 3
    for link in links:
        assert link.loss_fraction is not None and 0.004 < link.loss_fraction < 0.006
        assert link.loss_rtt_share is not None and link.loss_rtt_share < 1.1 and link.loss_spread is None
    assert only(tmp_path).kind == "exposed_communication"


def test_where_one_queue_overflows_rare_losses_elsewhere_are_no_lines(tmp_path: Path) -> None:
    full = [(1_000, 0), (1_000, 0), (1_000, 0), (90_000, 150)] * 20
    rare = [(2_000, 1), (2_000, 0), (2_000, 1), (900, 0)] * 20
    watched_ring(tmp_path / "both", {(0, 2): full, (1, 0): rare, (2, 1): full}, segments=100)
    assert only(tmp_path / "both").kind == "exposed_communication"
    calm = CALM * 5
    watched_ring(tmp_path / "alone", {(0, 2): calm, (1, 0): rare, (2, 1): calm}, segments=100)
    assert only(tmp_path / "alone").kind == "packet_loss"


def test_beside_a_queue_that_overflows_only_losses_without_end_are_the_lines(tmp_path: Path) -> None:
    full = [(1_000, 0), (1_000, 0), (1_000, 0), (90_000, 150)] * 20
    calm = CALM * 5
    often = [(40_000, 40), (50_000, 40), (40_000, 0)] * 27
    ever = [(40_000, 40), (50_000, 40), (40_000, 40)] * 27
    watched_ring(tmp_path / "often", {(0, 2): calm, (1, 0): full, (2, 1): often}, segments=1000)
    assert only(tmp_path / "often").kind == "exposed_communication"
    watched_ring(tmp_path / "ever", {(0, 2): calm, (1, 0): full, (2, 1): ever}, segments=1000)
    assert only(tmp_path / "ever").kind == "packet_loss"


def test_a_link_of_half_the_rate_is_reported_by_its_queue(tmp_path: Path) -> None:
    """Too little slower for its busy time alone to tell; and a queue that is not always there is no long way."""
    calm = [(20, 0), *[(2_000, 0), (4_000, 0)] * 16]
    queue = [(20, 0), *[(6_000, 0), (11_000, 0), (11_000, 0)] * 11]
    watched_ring(tmp_path / "slow", {(0, 2): calm, (1, 0): queue, (2, 1): queue}, {(1, 0): 1.7, (2, 1): 1.7})
    found = only(tmp_path / "slow")
    assert (found.kind, found.rank) == ("slow_link", 1)
    # Neither is enough by itself.
    watched_ring(tmp_path / "busy", dict.fromkeys(RING, calm), {(1, 0): 1.7, (2, 1): 1.7})
    assert only(tmp_path / "busy").kind == "exposed_communication"
    watched_ring(tmp_path / "queue", {(0, 2): calm, (1, 0): queue, (2, 1): queue})
    assert only(tmp_path / "queue").kind == "exposed_communication"


def test_a_few_moments_without_traffic_do_not_hide_a_long_way(tmp_path: Path) -> None:
    far = [(20, 0), (6_500, 0), *[(31_000, 0), (32_000, 0)] * 30]
    watched_ring(tmp_path, {(0, 2): CALM * 5, (1, 0): far, (2, 1): far}, {(1, 0): 3.8, (2, 1): 3.8})
    found = only(tmp_path)
    assert (found.kind, found.rank) == ("high_latency", 1)


def test_a_delay_that_the_systems_least_round_trip_does_not_know_yet(tmp_path: Path) -> None:
    far = [(20, 0)] + [(11_000, 0), (13_000, 0)] * 8
    busy = {(1, 0): 1.4, (2, 1): 1.4}
    watched_ring(tmp_path, {(0, 2): CALM, (1, 0): far, (2, 1): far}, busy)
    found = only(tmp_path)
    assert (found.kind, found.rank, found.evidence["min_rtt_ms"]) == ("high_latency", 1, 11.0)
    # Nor do the first readings, and the other links have queues of their own.
    queues = [(20, 0)] + [(3_600, 0), (9_000, 0)] * 10
    late = [(20, 0), (8_700, 0)] + [(12_000, 0), (13_500, 0)] * 10
    watched_ring(tmp_path / "queues", {(0, 2): queues, (1, 0): late, (2, 1): late}, busy)
    found = only(tmp_path / "queues")
    assert (found.kind, found.rank, found.evidence["min_rtt_ms"]) == ("high_latency", 1, 8.7)


def test_other_load_makes_the_round_trips_of_a_far_host_less_steady(tmp_path: Path) -> None:
    near = [(20, 0), (2_500, 0), *[(7_000, 0), (9_000, 0), (10_000, 0)] * 10]
    far = [(20, 0), (11_400, 0), *[(12_000, 0), (18_000, 0), (19_000, 0)] * 10]
    watched_ring(tmp_path, {(0, 2): near, (1, 0): far, (2, 1): far}, {(1, 0): 1.3, (2, 1): 1.3})
    found = only(tmp_path)
    assert (found.kind, found.rank) == ("high_latency", 1)


def test_small_messages_show_whether_the_way_is_long_or_a_queue(tmp_path: Path) -> None:
    """A queue that never empties is steady, too; but what goes over the same host beside it waits for less of it."""
    near = [(20, 0), (2_900, 0), *[(3_000, 0), (3_800, 0), (3_900, 0)] * 10]
    queue = [(20, 0), (15_000, 0), *[(16_000, 0), (19_000, 0), (21_000, 0)] * 10]
    behind = [(20, 0), (8_800, 0), *[(9_800, 0), (10_600, 0), (11_700, 0)] * 10]
    loaded = {(0, 2): near, (1, 0): queue, (2, 1): queue}
    light = (0, 1), (1, 2)
    busy = {(1, 0): 1.45, (2, 1): 1.45}
    watched_ring(tmp_path / "slow", {**loaded, **dict.fromkeys(light, behind)}, busy, light=light)
    found = only(tmp_path / "slow")
    assert (found.kind, found.rank) == ("slow_link", 1)
    watched_ring(tmp_path / "far", {**loaded, **dict.fromkeys(light, queue)}, busy, light=light)
    found = only(tmp_path / "far")
    assert (found.kind, found.rank) == ("high_latency", 1)
    # A queue on links that are busy as long as others is one that the ring fills by itself.
    watched_ring(tmp_path / "even", {**loaded, **dict.fromkeys(light, behind)}, light=light)
    assert only(tmp_path / "even").kind == "exposed_communication"


def test_round_trips_that_are_long_now_and_then_are_a_queue_and_no_delay(tmp_path: Path) -> None:
    queue = [(20, 0)] + [(5_000, 0), (30_000, 0)] * 8
    watched_ring(tmp_path, {(0, 2): CALM, (1, 0): queue, (2, 1): queue})
    assert only(tmp_path).kind == "exposed_communication"


def test_a_steady_queue_is_no_long_way(tmp_path: Path) -> None:
    """The way to a far host is as long for all; here each link waits behind what stands in the same slow interface."""
    calm = [(20, 0), *[(1_900, 0), (2_500, 0)] * 16]
    short, long = ([(20, 0), *[(low, 0), (high, 0)] * 16] for low, high in ((6_450, 6_850), (9_000, 11_100)))
    busy = {(1, 0): 3.3, (2, 1): 3.8}
    watched_ring(tmp_path / "slow", {(0, 2): calm, (1, 0): short, (2, 1): long}, busy)
    found = only(tmp_path / "slow")
    assert (found.kind, found.rank) == ("slow_link", 1)
    watched_ring(tmp_path / "far", {(0, 2): calm, (1, 0): long, (2, 1): long}, busy)
    found = only(tmp_path / "far")
    assert (found.kind, found.rank) == ("high_latency", 1)


def test_where_all_wait_as_long_none_is_far_however_steady_its_queue_is(tmp_path: Path) -> None:
    """A network that is slow for all: the queue before one interface is never empty, those before the others now and
    then."""
    steady = [(20, 0), *[(30_000, 0), (35_000, 0)] * 16]
    others = [(20, 0), (4_000, 0), *[(33_000, 0), (37_000, 0)] * 16]
    watched_ring(tmp_path, {(0, 2): others, (1, 0): steady, (2, 1): steady})
    assert only(tmp_path).kind == "exposed_communication"
