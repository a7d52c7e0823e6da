"""Checks that name a link, a host or an interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.reported import findings
from support.trace_writer import RankWriter
from support.wired import SEGMENTS, connect, only, ring

from pyddpdiag.analyse.bounds import BYTES_SHARE
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import number
from pyddpdiag.trace.layout import DTYPE_NAMES, Flag, Kind

LOSSY = {"retransmitted": SEGMENTS // 50, "dsack_dups": SEGMENTS // 100, "busy_us": 2 * 10**6}
FAR = {"min_rtt_us": 6_000}
SLOW = {"busy_us": 8 * 10**6}


def test_faults_of_links_that_nobody_waits_for_are_not_reported(tmp_path: Path) -> None:
    faults = {(0, 1): {**LOSSY, **FAR}, (1, 0): SLOW}
    ring(tmp_path, 2, faults, wire_ms=0.5)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("kind, fault", [("packet_loss", LOSSY), ("high_latency", FAR), ("slow_link", SLOW)])
def test_a_host_is_named_by_the_links_that_meet_there(
    tmp_path: Path, kind: str, fault: dict[str, int]
) -> None:
    ring(tmp_path, 4, {(3, 2): fault, (0, 3): fault})
    found = only(tmp_path)
    assert (found.kind, found.rank, found.peer) == (kind, 3, None)
    assert found.message.startswith("the host of rank 3 ")
    assert found.confidence == "high"
    assert found.cost_ms is not None and 0 < found.cost_ms <= float(found.evidence["exposed_ms"] or 0)


@pytest.mark.parametrize(
    "kind, fault, ends",
    [("packet_loss", LOSSY, (0, 1)), ("high_latency", FAR, (1, 0)), ("slow_link", SLOW, (1, 0))],
)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_one_bad_link_is_named_by_its_two_ends(
    tmp_path: Path, kind: str, fault: dict[str, int], ends: tuple[int, int], world_size: int
) -> None:
    ring(tmp_path, world_size, {(1, 0): fault})
    found = only(tmp_path)
    assert (found.kind, found.rank, found.peer) == (kind, *ends)
    assert "the link from rank 1 to rank 0" in found.message


def test_with_three_hosts_a_slow_one_is_not_hidden_by_its_neighbours(tmp_path: Path) -> None:
    ring(tmp_path, 3, {(2, 1): SLOW, (0, 2): SLOW})
    found = only(tmp_path)
    assert (found.kind, found.rank, found.peer) == ("slow_link", 2, None)
    assert found.evidence["times_the_others"] == pytest.approx(8.0)


def test_ranks_of_one_host_share_its_fault(tmp_path: Path) -> None:
    """Ranks 2 and 3 are on one host: the link between them is its loopback interface."""
    ips = {2: "10.0.0.9", 3: "10.0.0.9"}
    writers = ring(tmp_path, 4, {(2, 1): SLOW, (0, 3): SLOW}, ips=ips)
    for writer in writers[2:]:
        writer.sidecar["host"] = "shared"
        writer.write(tmp_path)
    found = only(tmp_path)
    assert (found.kind, found.rank, found.peer) == ("slow_link", 2, None)
    assert "the host of rank 2, 3" in found.message


def test_links_that_are_all_alike_name_nobody(tmp_path: Path) -> None:
    ring(tmp_path, 3, {(1, 0): FAR, (2, 1): FAR, (0, 2): FAR})
    found = only(tmp_path)
    assert (found.kind, found.rank, found.peer) == ("high_latency", None, None)
    ring(tmp_path, 3, {(1, 0): SLOW, (2, 1): SLOW, (0, 2): SLOW})
    assert only(tmp_path).kind == "exposed_communication"


def test_losses_are_named_though_little_time_can_be_laid_at_their_door(tmp_path: Path) -> None:
    ring(tmp_path, 3, {(1, 0): {**LOSSY, "busy_us": 1_050_000}})
    found = only(tmp_path)
    assert (found.kind, found.severity, found.rank) == ("packet_loss", "warning", 0)
    exposed = float(found.evidence["exposed_ms"] or 0)
    assert found.cost_ms is not None and 0 < found.cost_ms < 0.2 * exposed


def test_a_long_way_that_loses_has_both_faults(tmp_path: Path) -> None:
    ring(tmp_path, 3, {(1, 0): {**SLOW, **FAR, "retransmitted": SEGMENTS // 100}})
    assert {each.kind for each in findings(tmp_path)} == {"packet_loss", "high_latency"}


@pytest.mark.parametrize("percent", [1.8, 2.2])
def test_where_all_links_lose_a_little_the_network_is_full(tmp_path: Path, percent: float) -> None:
    """A sender loses so much to the queue that it fills."""
    fault = {"retransmitted": round(SEGMENTS * percent / 100)}
    ring(tmp_path, 3, dict.fromkeys(((0, 2), (1, 0), (2, 1)), fault))
    found = only(tmp_path)
    assert (found.kind, found.rank) == (("packet_loss" if percent > 2 else "exposed_communication"), None)


def test_two_causes_are_two_findings(tmp_path: Path) -> None:
    ring(tmp_path, 6, {(1, 0): LOSSY, (4, 3): SLOW, (5, 4): SLOW})
    assert {(each.kind, each.rank) for each in findings(tmp_path)} == {("packet_loss", 0), ("slow_link", 4)}


@pytest.mark.parametrize(
    "fault",
    [
        {"retransmitted": 1000, "dsack_dups": 1000},  # sent again for nothing
        {"retransmitted": 1000, "dsack_dups": None},  # not known whether for nothing
        {"retransmitted": 8, "dsack_dups": 0, "segments": 300},  # may be chance
        {"retransmitted": 150},
        {"min_rtt_us": 1_000},
        {"min_rtt_us": None},
        {"busy_us": 1_900_000},
        {"busy_us": None},
        {"bytes_acked": None, "bytes_sent": None, **SLOW},
    ],
)
def test_what_is_sound_or_not_known_is_not_blamed(tmp_path: Path, fault: dict[str, int | None]) -> None:
    ring(tmp_path, 3, {(1, 0): fault})
    assert only(tmp_path).kind == "exposed_communication"


def test_a_delay_costs_no_more_than_the_messages_in_a_row(tmp_path: Path) -> None:
    ring(tmp_path, 2, {(1, 0): {"min_rtt_us": 3_000}, (0, 1): {"min_rtt_us": 3_000}})
    found = only(tmp_path)
    exposed, wire = float(found.evidence["exposed_ms"] or 0), float(found.evidence["wire_ms"] or 0)
    assert "between rank 0 and rank 1" in found.message
    assert found.cost_ms == pytest.approx(exposed * 2 * 1.5 / wire)


def test_with_many_ranks_a_round_trip_is_a_smaller_part_of_a_bucket(tmp_path: Path) -> None:
    ring(tmp_path / "few", 4, {(1, 0): {"min_rtt_us": 800}})
    assert only(tmp_path / "few").kind == "exposed_communication"
    ring(tmp_path / "many", 8, {(1, 0): {"min_rtt_us": 800}})
    assert only(tmp_path / "many").kind == "high_latency"


def test_ranks_of_one_machine_are_told_of_its_loopback(tmp_path: Path) -> None:
    ips = {rank: "192.168.7.7" for rank in range(3)}
    ring(tmp_path, 3, ips=ips, sidecar={"host": "one"})
    found = only(tmp_path)
    assert (found.kind, found.severity, found.rank) == ("loopback", "warning", None)
    assert 'compress="bf16"' in found.advice
    assert found.cost_ms == pytest.approx(float(found.evidence["exposed_ms"] or 0))
    # Nor is it advised once more where it was done.
    for writer in ring(tmp_path, 3, ips=ips, sidecar={"host": "one"}):
        for record in writer.records:
            if record["kind"] == Kind.BUCKET:
                record["dtype"] = DTYPE_NAMES.index("bfloat16")
        writer.write(tmp_path)
    assert "bf16" not in only(tmp_path).advice


def _one_machine(
    folder: Path, *, flags: int = 0, recorded_by: str = "", launch: Any = None, **training: Any
) -> Finding:
    ips = {rank: "192.168.7.7" for rank in range(2)}
    sidecar = {"host": "one", "recorded_by": recorded_by, "launch": launch}
    writers = ring(folder, 2, ips=ips, sidecar=sidecar, **training)
    for writer in writers:
        for record in writer.records:
            if record["kind"] == Kind.BUCKET:
                record["flags"] |= flags
        writer.write(folder)
    return only(folder)


def test_the_loopback_finding_tells_what_shared_memory_would_save(tmp_path: Path) -> None:
    # Two buckets of 4 MB and 14 ms each: of one size and large, so bytes alone make their time.
    found = _one_machine(tmp_path, buckets=2)
    assert found.kind == "loopback"
    exposed, saved = found.evidence["exposed_ms"], found.evidence["shared_memory_saves_ms"]
    assert isinstance(exposed, float) and isinstance(saved, float)
    assert saved == pytest.approx(min(2 * 14.0 * (1 - BYTES_SHARE), exposed - 14.0 * BYTES_SHARE))
    assert f'shared_memory="auto") would save about {number(saved)} ms of these' in found.advice
    assert 'compress="bf16"' in found.advice


@pytest.mark.parametrize(
    ("recorded_by", "share", "compress"),
    [
        ("run", "pyddpdiag run --shared-memory auto", "pyddpdiag run --compress bf16"),
        ("lightning", "in place of Diagnostics", 'recorder.attach(ddp, compress="bf16")'),
        ("train", "pyddpdiag train --shared-memory auto", "pyddpdiag train --compress bf16"),
    ],
)
def test_advice_can_be_followed_where_the_script_has_no_recorder(
    tmp_path: Path, recorded_by: str, share: str, compress: str
) -> None:
    advice = _one_machine(tmp_path, buckets=2, recorded_by=recorded_by).advice
    assert share in advice.split("would save")[0] and compress in advice
    # Two lines, and not one that nobody holds a recorder for.
    assert advice.count("recorder.attach") == advice.count('recorder = pyddpdiag.Recorder("DIR")')


def test_advice_ends_with_the_runs_own_command_and_what_was_applied_before(tmp_path: Path) -> None:
    launch = {"command": ["torchrun", "my train.py"], "cures": {"--threads": "1", "--pin-ranks": ""}}
    advice = _one_machine(tmp_path, buckets=2, recorded_by="run", launch=launch).advice
    text, line = advice.split("\n")
    assert line == "pyddpdiag run --threads 1 --pin-ranks --shared-memory auto -- torchrun 'my train.py'"
    assert "pyddpdiag run --shared-memory auto would save" in text
    started = {"command": ["train.py"], "cures": {}, "start": {"--nproc": "2"}}
    advice = _one_machine(tmp_path / "started", buckets=2, recorded_by="run", launch=started).advice
    assert advice.endswith("\npyddpdiag run --nproc 2 --shared-memory auto -- train.py")
    command = tmp_path / "unknown"
    assert "\n" not in _one_machine(command, buckets=2, recorded_by="run").advice


def test_nothing_is_advised_that_the_lanes_of_a_run_exclude(tmp_path: Path) -> None:
    launch = {"command": ["train.py"], "cures": {"--lanes": "eth0,lo"}}
    found = _one_machine(tmp_path, buckets=2, recorded_by="run", launch=launch)
    assert found.evidence["shared_memory_saves_ms"] is None
    assert found.advice == "Use fewer processes with more threads each (OMP_NUM_THREADS)."


def test_of_few_bytes_no_half_is_sent(tmp_path: Path) -> None:
    ips = {rank: "192.168.7.7" for rank in range(2)}
    for writer in ring(tmp_path, 2, ips=ips, sidecar={"host": "one"}):
        for record in writer.records:
            if record["kind"] == Kind.BUCKET:
                record["bytes"] = 84
        writer.write(tmp_path)
    found = only(tmp_path)
    assert found.kind == "loopback" and "bf16" not in found.advice and "OMP_NUM_THREADS" in found.advice


def test_where_buckets_are_in_shared_memory_nothing_more_is_saved_by_it(tmp_path: Path) -> None:
    found = _one_machine(tmp_path, flags=int(Flag.SHARED))
    assert found.kind == "exposed_communication"
    assert "shared_memory" not in found.advice


@pytest.mark.parametrize(("gloo", "kind"), [(6, "exposed_communication"), (14, "loopback")])
def test_after_a_trial_advice_is_about_the_way_that_most_buckets_took(
    tmp_path: Path, gloo: int, kind: str
) -> None:
    ips = {rank: "192.168.7.7" for rank in range(2)}
    for writer in ring(tmp_path, 2, ips=ips, sidecar={"host": "one"}):
        for record in writer.records:
            if record["kind"] == Kind.BUCKET and record["step"] >= gloo:
                record["flags"] |= int(Flag.SHARED)
        writer.write(tmp_path)
    assert only(tmp_path).kind == kind


def test_little_waiting_on_loopback_is_unsure(tmp_path: Path) -> None:
    ips = {rank: "127.0.0.1" for rank in range(2)}
    ring(tmp_path, 2, ips=ips, sidecar={"host": "one"}, buckets=2, compute_ms=40, wire_ms=6.5)
    found = only(tmp_path)
    assert (found.kind, found.confidence) == ("loopback", "low")


def test_a_machine_among_others_is_not_told_of_its_loopback(tmp_path: Path) -> None:
    ring(tmp_path, 3, ips={0: "10.0.0.9", 1: "10.0.0.9"}, sidecar={"host": "one"})
    assert only(tmp_path).kind == "exposed_communication"


def interfaces(rank: int, **speeds: int | None) -> list[dict[str, Any]]:
    """One for each keyword, on a network of its own: 10.0.<place>.<rank + 1>."""
    return [
        {"name": name, "addresses": [f"10.0.{place}.{rank + 1}/24"], "speed_mbit": speed}
        for place, (name, speed) in enumerate(speeds.items())
    ]


def on_interfaces(
    folder: Path, world_size: int, asked: Mapping[int, str], **speeds: int | None
) -> list[RankWriter]:
    """A ring over each rank's first interface."""
    writers = ring(folder, world_size)
    for rank, writer in enumerate(writers):
        writer.sidecar["interfaces"] = interfaces(rank, **speeds)
        if rank in asked:
            writer.sidecar["environment"] = {"GLOO_SOCKET_IFNAME": asked[rank]}
        writer.write(folder)
    return writers


def write_as_on_windows(folder: Path, writers: Sequence[RankWriter]) -> None:
    """Once more, with the name of the system that Windows' own sidecars have."""
    for writer in writers:
        writer.sidecar["platform"] = "Windows-10-10.0.19045-SP0"
        writer.write(folder)


def test_traffic_on_an_interface_that_was_not_asked_for(tmp_path: Path) -> None:
    writers = on_interfaces(tmp_path, 3, {1: "eth1"}, eth0=None, eth1=None)
    found = only(tmp_path)
    assert (found.kind, found.rank) == ("wrong_interface", 1)
    assert "GLOO_SOCKET_IFNAME asks for eth1, and rank 1 sends over eth0" in found.message
    assert found.advice.endswith(": export GLOO_SOCKET_IFNAME=eth1")
    write_as_on_windows(tmp_path, writers)
    assert only(tmp_path).advice.endswith(": $env:GLOO_SOCKET_IFNAME = 'eth1'")


def test_two_interfaces_of_which_one_is_not_used(tmp_path: Path) -> None:
    on_interfaces(tmp_path, 2, dict.fromkeys(range(2), "eth0,eth1"), eth0=None, eth1=None)
    found = only(tmp_path)
    assert (found.kind, found.rank, found.evidence["better"]) == ("wrong_interface", None, "eth1")
    assert found.cost_ms == pytest.approx(float(found.evidence["exposed_ms"] or 0) / 2)


def test_two_interfaces_that_are_both_used_are_right(tmp_path: Path) -> None:
    writers = on_interfaces(tmp_path, 2, dict.fromkeys(range(2), "eth0,eth1"), eth0=None, eth1=None)
    for rank, writer in enumerate(writers):
        connect(
            writer, writers[1 - rank], f"10.0.1.{rank + 1}:{7000 + rank}", f"10.0.1.{2 - rank}:{8000 - rank}"
        )
    for writer in writers:
        writer.write(tmp_path)
    assert only(tmp_path).kind == "exposed_communication"


def test_a_faster_interface_to_the_same_hosts(tmp_path: Path) -> None:
    on_interfaces(tmp_path, 2, {}, eth0=1_000, eth1=10_000)
    found = only(tmp_path)
    assert (found.kind, found.advice.rpartition("=")[2]) == ("wrong_interface", "eth1")
    assert "eth0 (1000 Mbit/s), and eth1 (10000 Mbit/s)" in found.message
    assert found.cost_ms == pytest.approx(float(found.evidence["exposed_ms"] or 0) * 0.9)


def test_an_idle_interface_beside_one_that_carries_next_to_nothing(tmp_path: Path) -> None:
    # 100 MB in 1 s are 800 Mbit/s of 100,000.
    asked = dict.fromkeys(range(3), "eth0")
    on_interfaces(tmp_path, 3, asked, eth0=100_000, eth1=100_000)
    # Whether it would carry more is not known: that is noted beside what is.
    first, found = findings(tmp_path)
    assert (first.kind, found.kind, found.rank) == ("exposed_communication", "wrong_interface", None)
    assert (found.severity, found.confidence, found.evidence["why"]) == ("note", "low", "idle")
    assert "800 Mbit/s" in found.message
    # As much as it is made for: nothing says that another one would carry more.
    on_interfaces(tmp_path / "full", 3, asked, eth0=1000, eth1=1000)
    assert only(tmp_path / "full").kind == "exposed_communication"


def test_a_faster_interface_that_was_not_wanted_or_reaches_nobody_is_no_better(tmp_path: Path) -> None:
    on_interfaces(tmp_path / "wanted", 2, dict.fromkeys(range(2), "eth0"), eth0=1_000, eth1=10_000)
    assert only(tmp_path / "wanted").kind == "exposed_communication"
    writers = on_interfaces(tmp_path / "alone", 2, {}, eth0=1_000, eth1=10_000)
    writers[1].sidecar["interfaces"] = interfaces(1, eth0=1_000)
    writers[1].write(tmp_path / "alone")
    assert only(tmp_path / "alone").kind == "exposed_communication"
    # A bridge for containers has the same address everywhere.
    writers = on_interfaces(tmp_path / "bridge", 2, {}, eth0=1_000)
    for writer in writers:
        bridge = {"name": "docker0", "addresses": ["172.17.0.1/16"], "speed_mbit": 10_000}
        writer.sidecar["interfaces"].append(bridge)
        writer.write(tmp_path / "bridge")
    assert only(tmp_path / "bridge").kind == "exposed_communication"


def test_an_order_of_interfaces_that_differs(tmp_path: Path) -> None:
    asked = {0: "eth0,eth1", 1: "eth0,eth1", 2: "eth1, eth0"}
    writers = on_interfaces(tmp_path, 3, asked, eth0=None, eth1=None)
    # That an interface is not used comes of it.
    order = only(tmp_path)
    assert order.kind == "interface_order"
    assert (order.severity, order.rank) == ("warning", 2)
    assert order.advice.endswith(": export GLOO_SOCKET_IFNAME=eth0,eth1")
    write_as_on_windows(tmp_path, writers)
    assert only(tmp_path).advice.endswith(": $env:GLOO_SOCKET_IFNAME = 'eth0,eth1'")
    # Other names on another machine are no other order.
    writers[2].sidecar["environment"] = {"GLOO_SOCKET_IFNAME": "ens1,ens0"}
    writers[2].sidecar["interfaces"] = []
    writers[2].write(tmp_path)
    assert "interface_order" not in {each.kind for each in findings(tmp_path)}


def test_an_order_that_costs_nothing_is_a_note(tmp_path: Path) -> None:
    writers = ring(tmp_path, 2, wire_ms=0.5)
    for rank, names in enumerate(("a,b", "b,a")):
        writers[rank].sidecar["environment"] = {"GLOO_SOCKET_IFNAME": names}
        writers[rank].write(tmp_path)
    found = only(tmp_path)
    # With two ranks neither order is the usual one.
    assert (found.kind, found.severity, found.rank) == ("interface_order", "note", None)
