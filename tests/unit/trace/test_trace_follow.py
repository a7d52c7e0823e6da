"""Following a run: each look reads only what is new, and sees what a whole reading would see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

from pyddpdiag.system.regular_file import RegularFile
from pyddpdiag.trace import slots
from pyddpdiag.trace.follow import RunFollower
from pyddpdiag.trace.layout import HEADER_BYTES, Kind
from pyddpdiag.trace.reader import RankTrace, is_in_flight, read_trace

KEEP = 40


def same(one: RankTrace, other: RankTrace) -> None:
    assert len(one) == len(other) > 0
    for kind in Kind:
        assert one.of_kind(kind).tobytes() == other.of_kind(kind).tobytes(), kind
    assert (one.newest_ns, one.older, one.sidecar) == (other.newest_ns, other.older, other.sidecar)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("capacity", [1024, 64, 48])
def test_a_follower_sees_what_a_whole_reading_sees(capacity: int, order: str, tmp_path: Path) -> None:
    """Looks of all lengths, over the end of the ring, with an operation that ends between two looks."""
    writer = RankWriter(capacity=capacity, order=order)
    follower = RunFollower(tmp_path, KEEP)
    path = tmp_path / "rank_0.ddptrace"
    for look, count in enumerate([5, 0, 1, 30, KEEP, KEEP + 7, 3, 200]):
        for number in range(count):
            now = (len(writer.records) + 1) * MS
            writer.bucket(len(writer.records), now, now + 1, now + 2, step=number)
        open_one = writer.bucket(len(writer.records), look * MS + 1, look * MS + 2, 0, state=IN_FLIGHT)
        writer.write(tmp_path)
        (trace,) = follower.look().ranks
        same(trace, read_trace(path, newest=KEEP))
        assert int(is_in_flight(trace.of_kind(Kind.BUCKET)).sum()) == 1
        record = writer.records[open_one]
        record["word"] += 1
        record["times"][3] = look * MS + 3
        writer.write(tmp_path)
        same(follower.look().ranks[0], read_trace(path, newest=KEEP))


def test_a_record_that_was_being_written_is_seen_later(tmp_path: Path) -> None:
    writer = RankWriter()
    for number in range(10):
        writer.bucket(number, MS, MS, 2 * MS)
    writer.records[4]["word"] -= 2  # writing
    writer.write(tmp_path)
    follower = RunFollower(tmp_path, KEEP)
    assert len(follower.look().ranks[0]) == 9
    writer.records[4]["word"] += 2
    writer.write(tmp_path)
    assert len(follower.look().ranks[0]) == 10


def test_a_run_that_begins_anew_is_followed(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, KEEP)
    for run, steps in ((b"first", 9), (b"second", 3), (b"third", 12)):
        for writer in write_training(tmp_path, steps=steps):
            writer.header["run_id"] = run
            writer.write(tmp_path)
        looked = follower.look()
        assert looked.run_id == run.ljust(16, b"\0").hex()
        for trace in looked.ranks:
            same(trace, read_trace(trace.path, newest=KEEP))


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    amount = [0]
    read_into = RegularFile.read_into

    def counted(self: RegularFile, target: npt.NDArray[np.uint8], offset: int) -> int:
        amount[0] += len(target) if offset >= HEADER_BYTES else 0
        return read_into(self, target, offset)

    writer = RankWriter(capacity=4096)
    for number in range(3000):
        writer.bucket(number, MS, MS, 2 * MS)
    writer.write(tmp_path)
    follower = RunFollower(tmp_path, 2048)
    assert len(follower.look().ranks[0]) == 2048
    writer.bucket(3000, MS, MS, 2 * MS)
    writer.write(tmp_path)
    monkeypatch.setattr(RegularFile, "read_into", counted)
    assert len(follower.look().ranks[0]) == 2048
    assert 0 < amount[0] <= 4 * 128


def test_the_newest_records_of_a_ring_come_in_order(tmp_path: Path) -> None:
    writer = RankWriter(capacity=100)
    for number in range(250):
        writer.bucket(number, MS, MS, 2 * MS)
    path = writer.write(tmp_path)
    trace = read_trace(path, newest=70)
    assert trace.of_kind(Kind.BUCKET)["sequence"].tolist() == list(range(180, 250))
    assert trace.older == 30
    assert len(read_trace(path, newest=1000)) == 100
    assert read_trace(path, newest=1000).older == 0


def test_the_slots_of_tickets() -> None:
    for since, end, capacity, there in (
        *[(0, 5, 8, 8), (5, 8, 8, 8), (6, 11, 8, 8), (3, 20, 8, 8), (9, 9, 8, 8), (6, 11, 8, 7)],
    ):
        found = [
            slot
            for begin, last in slots._slots_of(since, end, capacity, there)
            for slot in range(begin, last)
        ]
        wanted = [ticket % capacity for ticket in range(max(since, end - capacity), end)]
        assert found == [slot for slot in wanted if slot < there]


def test_an_attempt_after_a_restart_is_followed(tmp_path: Path) -> None:
    follower = RunFollower(tmp_path, KEEP)
    write_training(tmp_path, steps=3)
    first = follower.look()
    write_training(tmp_path / "attempt-1", steps=5)
    second = follower.look()
    assert (first.folder, second.folder) == (tmp_path, tmp_path / "attempt-1")
    assert [len(set(trace.of_kind(Kind.STEP)["step"])) for trace in second.ranks] == [5] * len(second.ranks)
