"""From readings of connections to links between ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.trace_writer import MS, RankWriter, fnv
from support.wired import BEGIN, END, connect, ring

from pyddpdiag.analyse.view import RunView
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import report_from_dict, report_to_dict, report_to_json
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.run import open_run


def view(writers: Iterable[RankWriter], folder: Path) -> RunView:
    for writer in writers:
        writer.write(folder)
    return RunView(open_run(folder))


def two(
    folder: Path, local: str = "10.0.0.1:5000", peer: str = "10.0.0.2:6000", **readings: int | None
) -> RunView:
    """Two ranks and one connection, over which rank 0 sends."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    connect(writers[0], writers[1], local, peer, **readings)
    return view(writers, folder)


def test_a_link_is_the_difference_of_its_readings(tmp_path: Path) -> None:
    there, back = two(tmp_path, busy_us=500_000, retransmitted=900, dsack_dups=200).links
    assert (there.rank, there.peer, there.local, there.remote) == (0, 1, "10.0.0.1", "10.0.0.2")
    assert (there.bytes, there.segments, there.retransmitted, there.dsack_dups) == (
        100_000_000,
        70_000,
        900,
        200,
    )
    assert there.busy_ms_per_mb == pytest.approx(5.0)
    assert there.loss_fraction == pytest.approx(0.01)
    assert there.min_rtt_ms == pytest.approx(0.02)
    assert there.seconds == pytest.approx((END - BEGIN) / 1e9)
    assert not there.loopback
    assert (back.rank, back.peer, back.bytes) == (1, 0, 0)


def test_what_is_not_available_is_none_and_not_zero(tmp_path: Path) -> None:
    unknown = dict.fromkeys(("bytes_sent", "bytes_acked", "busy_us", "segments", "dsack_dups", "min_rtt_us"))
    there = two(tmp_path, **unknown).links[0]
    assert (there.bytes, there.busy_ms_per_mb, there.segments, there.dsack_dups) == (None,) * 4
    assert (there.loss_fraction, there.min_rtt_ms) == (None, None)
    assert there.retransmitted == 0


def test_bytes_sent_count_where_confirmed_ones_are_unknown(tmp_path: Path) -> None:
    there = two(tmp_path, bytes_acked=None, bytes_sent=7).links[0]
    assert there.bytes == 7


def test_counters_of_32_bits_may_begin_again(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    name, back = "10.0.0.1:5000|10.0.0.2:6000", "10.0.0.2:6000|10.0.0.1:5000"
    for writer, text in zip(writers, (name, back), strict=True):
        writer.connection_name(text)
        writer.reading(text, BEGIN, segments=2**32 - 10, retransmitted=5, dsack_dups=5)
        writer.reading(text, END, segments=90, retransmitted=6, dsack_dups=5)
    there = view(writers, tmp_path).links[0]
    assert (there.segments, there.retransmitted) == (100, 1)


def test_a_counter_that_goes_back_was_another_connections(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    name, back = "10.0.0.1:5000|10.0.0.2:6000", "10.0.0.2:6000|10.0.0.1:5000"
    for writer, text in zip(writers, (name, back), strict=True):
        writer.connection_name(text)
        writer.reading(text, BEGIN, bytes_acked=1000, bytes_sent=1000)
        writer.reading(text, END, bytes_acked=10, bytes_sent=10)
    assert view(writers, tmp_path).links[0].bytes is None


def test_the_least_round_trip_is_of_all_readings(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    connect(writers[0], writers[1], "10.0.0.1:5000", "10.0.0.2:6000")
    for at, trip in ((END + MS, 7), (END + 2 * MS, None), (END + 3 * MS, 30)):
        writers[0].reading("10.0.0.1:5000|10.0.0.2:6000", at, min_rtt_us=trip)
    assert view(writers, tmp_path).links[0].min_rtt_ms == pytest.approx(0.007)


def test_a_link_that_is_cut_is_not_slow(tmp_path: Path) -> None:
    """What was on its way when it was cut stays to be sent: for a minute, of which nothing is confirmed."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    connect(writers[0], writers[1], "10.0.0.1:5000", "10.0.0.2:6000", busy_us=500_000)
    name = "10.0.0.1:5000|10.0.0.2:6000"
    cut = {"bytes_sent": 10**8 + 1001, "bytes_acked": 10**8 + 1001, "segments": 71_004}
    for half in range(1, 121):
        writers[0].reading(name, END + half * 500 * MS, busy_us=501_003 + half * 500_000, **cut)
    assert view(writers, tmp_path).links[0].busy_ms_per_mb == pytest.approx(5.0)


@pytest.mark.parametrize("order", ["<", ">"])
def test_names_of_several_parts_and_of_either_byte_order(tmp_path: Path, order: str) -> None:
    writers = [RankWriter(rank, 2, order=order) for rank in range(2)]
    ends = ("2001:db8:1111:2222:3333:4444:5555:6666:5000", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff:6000")
    connect(writers[0], writers[1], *ends)
    there = view(writers, tmp_path).links[0]
    assert (there.local, there.remote) == ("2001:db8:1111:2222:3333:4444:5555:6666", ends[1][:-5])
    assert there.bytes == 100_000_000


def test_connections_between_the_same_addresses_are_one_link(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for port in range(3):
        connect(writers[0], writers[1], f"10.0.0.1:{5000 + port}", f"10.0.0.2:{6000 + port}", busy_us=200_000)
    connect(writers[0], writers[1], "10.0.1.1:5000", "10.0.1.2:6000")
    links = view(writers, tmp_path).links
    found = [(link.local, link.connections, link.bytes) for link in links if link.rank == 0]
    assert found == [("10.0.0.1", 3, 300_000_000), ("10.0.1.1", 1, 100_000_000)]
    assert links[0].busy_ms_per_mb == pytest.approx(2.0)


def test_connections_of_others_and_of_the_store_are_no_links(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for writer in writers:
        writer.sidecar["environment"] = {"MASTER_PORT": "29500"}
    connect(writers[1], writers[0], "10.0.0.2:4000", "10.0.0.1:29500")
    writers[0].connection_name("10.0.0.1:4001|10.9.9.9:443")
    writers[0].reading("10.0.0.1:4001|10.9.9.9:443", BEGIN, bytes_sent=5)
    # A process that is connected to itself.
    connect(writers[0], writers[0], "127.0.0.1:1", "127.0.0.1:2")
    found = view(writers, tmp_path)
    assert (found.links, len(found.connections)) == ((), 5)


def test_loopback_addresses_of_two_hosts_do_not_meet(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    connect(writers[0], writers[1], "127.0.0.1:1", "127.0.0.1:2")
    assert view(writers, tmp_path).links == ()
    for writer in writers:
        writer.sidecar["host"] = "one"
    assert [link.loopback for link in view(writers, tmp_path).links] == [True, True]


def test_interfaces_are_named_by_their_addresses(tmp_path: Path) -> None:
    writers = [RankWriter(rank, 2) for rank in range(2)]
    connect(writers[0], writers[1], "10.0.0.1:5000", "10.0.0.2:6000")
    writers[0].sidecar["interfaces"] = [
        {"name": "lo", "addresses": ["127.0.0.1/8", "::1/128"]},
        {"name": "eth7", "addresses": ["fe80::1/64", "10.0.0.1/24"], "speed_mbit": 1000},
    ]
    there, back = view(writers, tmp_path).links
    assert (there.interface, there.peer_interface) == ("eth7", "")
    assert (back.interface, back.peer_interface) == ("", "eth7")


def test_readings_are_no_events(tmp_path: Path) -> None:
    """They go on while nothing happens: a run that stands still must not look alive by them."""
    writer = RankWriter()
    writer.step(0, MS, 2 * MS, 3 * MS)
    name = "10.0.0.1:5000|10.0.0.2:6000"
    writer.connection_name(name)
    writer.reading(name, 900_000 * MS, bytes_sent=1)
    writer.write(tmp_path)
    trace = open_run(tmp_path).ranks[0]
    assert (len(trace), trace.newest_ns, trace.malformed, trace.unknown) == (1, 3 * MS, 0, 0)


def test_readings_without_a_name_and_names_without_a_reading_are_left_out(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.reading("10.0.0.1:5000|10.0.0.2:6000", BEGIN, bytes_sent=1)
    writer.connection_name("10.0.0.1:5001|10.0.0.2:6000")
    writer.connection_name("no name at all")
    writer.reading("no name at all", BEGIN)
    writer.add(9, flags=2048, reference=fnv(b"x"), index=2**32 - 1, text=b"far")
    assert view([writer], tmp_path).connections == ()


def test_the_report_has_the_links_and_reads_them_back(tmp_path: Path) -> None:
    ring(tmp_path, 3)
    report = load_report(tmp_path)
    links = report_to_dict(report)["links"]
    assert [(link["rank"], link["peer"]) for link in links] == [
        *[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    ]
    assert report_from_dict(json.loads(report_to_json(report))).links == report.links


def test_the_report_shows_the_links_that_carry_gradients(tmp_path: Path) -> None:
    ring(tmp_path, 3, {(2, 1): {"retransmitted": 700, "min_rtt_us": None}})
    out = io.StringIO()
    print_text(load_report(tmp_path), out, tables=True)
    lines = [line.split() for line in out.getvalue().splitlines()]
    begin = next(place for place, words in enumerate(lines) if words[:1] == ["Links"])
    assert lines[begin + 3 : begin + 6] == [
        ["0", "2", "10.0.0.1", "100", "MB", "10.0", "0.020", "0.00%"],
        ["1", "0", "10.0.0.2", "100", "MB", "10.0", "0.020", "0.00%"],
        ["2", "1", "10.0.0.3", "100", "MB", "10.0", "-", "1.00%"],
    ]


def test_readings_of_random_bits_are_survived(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    names = ["10.0.0.1:5000|10.0.0.2:6000", "10.0.0.2:6000|10.0.0.1:5000"]
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.connection_name(names[rank])
        for _ in range(200):
            wild = random.integers(0, 2**64, 11, np.uint64, endpoint=False)
            writer.add(
                9,
                reference=fnv(names[rank].encode()),
                bytes=wild[8],
                sequence=wild[9],
                group=wild[10],
                module=wild[0] & 0xFFFFFFFF,
                index=wild[1] & 0xFFFFFFFF,
                times=tuple(wild[:8].view(np.int64).tolist()),
            )
        for _ in range(20):
            writer.add(9, flags=2048, reference=int(random.integers(0, 9)), text=random.bytes(64))
        writer.write(tmp_path)
    assert len(RunView(open_run(tmp_path)).links) == 2
    parsed = json.loads(report_to_json(load_report(tmp_path)))
    assert len(parsed["links"]) == 2
