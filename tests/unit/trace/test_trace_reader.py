from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trace_writer import BUCKET, COMPLETE, IN_FLIGHT, RankWriter, header_page

from pyddpdiag.errors import TraceError, TraceVersionError
from pyddpdiag.system.regular_file import RegularFile
from pyddpdiag.trace.header import parse_header
from pyddpdiag.trace.layout import Kind, Records
from pyddpdiag.trace.layout import record_dtype as reader_dtype
from pyddpdiag.trace.reader import is_in_flight, read_trace, tickets_of
from pyddpdiag.trace.slots import PIECE, PublishedRecords

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
TIME = st.integers(0, 2**61)


def patched(path: Path, offset: int, raw: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(raw)] = raw
    path.write_bytes(data)
    return path


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(U64, U64, U64, U32, U32, TIME, st.booleans()), max_size=40),
    st.sampled_from("<>"),
    st.integers(1, 50),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int, int, int, int, bool]],
    order: str,
    capacity: int,
) -> None:
    writer = RankWriter(3, 8, capacity=capacity, order=order)
    for sequence, reference, size, step, module, begin, is_open in rows:
        writer.add(
            BUCKET,
            sequence=sequence,
            reference=reference,
            bytes=size,
            step=step,
            module=module,
            times=(begin, begin, begin, 0 if is_open else begin),
            state=IN_FLIGHT if is_open else COMPLETE,
        )
    trace = read_trace(writer.write(tmp_path_factory.mktemp("run")))
    kept = rows[max(0, len(rows) - capacity) :]
    assert (trace.rank, trace.header.world_size, trace.torn, trace.malformed) == (3, 8, 0, 0)
    assert tickets_of(trace.of_kind(Kind.BUCKET)).tolist() == list(range(len(rows) - len(kept), len(rows)))
    assert is_in_flight(trace.of_kind(Kind.BUCKET)).tolist() == [row[6] for row in kept]
    for column, name in enumerate(("sequence", "reference", "bytes", "step", "module")):
        assert trace.of_kind(Kind.BUCKET)[name].tolist() == [row[column] for row in kept]
    assert trace.of_kind(Kind.BUCKET)["times"][:, 0].tolist() == [row[5] for row in kept]
    assert trace.of_kind(Kind.BUCKET)["times"].dtype.isnative


@pytest.mark.parametrize("order", "<>")
def test_text_survives_either_byte_order(tmp_path: Path, order: str) -> None:
    writer = RankWriter(order=order)
    ticket = writer.collective("gloo:broadcast", 5, 9)
    writer.error(ticket, "Connection reset by peer " * 4)
    trace = read_trace(writer.write(tmp_path))
    record = trace.of_kind(Kind.COLLECTIVE)[0]
    assert record["name"] == b"gloo:broadcast"
    assert record["times"][:2].tolist() == [5, 9]
    joined = b"".join(trace.of_kind(Kind.ERROR)["text"].tolist())
    assert joined == b"Connection reset by peer " * 4


def test_ring_that_went_round_is_sorted_by_ticket(tmp_path: Path) -> None:
    writer = RankWriter(capacity=8)
    for sequence in range(21):
        writer.bucket(sequence, 10, 20, 30)
    trace = read_trace(writer.write(tmp_path))
    assert trace.of_kind(Kind.BUCKET)["sequence"].tolist() == list(range(13, 21))
    assert trace.header.overwritten == 13
    assert any("13 older records were overwritten" in text for _, text in trace.warnings)


def test_torn_record_is_dropped_and_counted(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 1, 2, 3)
    writer.bucket(1, 1, 2, 3, state=1)
    writer.bucket(2, 1, 2, 3)
    trace = read_trace(writer.write(tmp_path))
    assert trace.of_kind(Kind.BUCKET)["sequence"].tolist() == [0, 2]
    assert trace.torn == 1


def test_record_in_a_foreign_slot_is_malformed(tmp_path: Path) -> None:
    writer = RankWriter(capacity=8)
    writer.bucket(0, 1, 2, 3)
    path = writer.write(tmp_path)
    patched(path, 4096, np.array([(5 + 1) << 2 | 3], "<u8").tobytes())
    trace = read_trace(path)
    assert len(trace) == 0
    assert trace.malformed == 1


@pytest.mark.parametrize("times", [(-1, 0, 0, 0), (2**62, 0, 0, 0), (10, 10, 10, 5), (0, 10, 0, 9)], ids=str)
def test_impossible_times_are_malformed(tmp_path: Path, times: tuple[int, ...]) -> None:
    writer = RankWriter()
    writer.add(BUCKET, times=times)
    writer.bucket(1, 1, 2, 3)
    trace = read_trace(writer.write(tmp_path))
    assert trace.of_kind(Kind.BUCKET)["sequence"].tolist() == [1]
    assert trace.malformed == 1


def test_unknown_kind_is_left_out_and_reported(tmp_path: Path) -> None:
    writer = RankWriter(minor=7)
    writer.add(99, times=(-5,))
    writer.bucket(1, 1, 2, 3)
    trace = read_trace(writer.write(tmp_path))
    assert (len(trace), trace.unknown, trace.malformed) == (1, 1, 0)
    assert trace.header.minor == 7


def test_truncated_in_the_records_reads_what_is_there(tmp_path: Path) -> None:
    writer = RankWriter(capacity=64)
    for sequence in range(10):
        writer.bucket(sequence, 1, 2, 3)
    path = writer.write(tmp_path)
    path.write_bytes(path.read_bytes()[: 4096 + 3 * 128 + 50])
    trace = read_trace(path)
    assert trace.of_kind(Kind.BUCKET)["sequence"].tolist() == [0, 1, 2]
    assert any("truncated" in text for _, text in trace.warnings)


@pytest.mark.parametrize("size", [1, 8, 4095])
def test_truncated_in_the_header_is_an_error(tmp_path: Path, size: int) -> None:
    path = RankWriter().write(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TraceError, match=r"rank_0\.ddptrace: truncated"):
        read_trace(path)


@pytest.mark.parametrize("size", [0, 8, 4096, 4096 + 64 * 128])
def test_recorder_that_was_killed_at_its_start_never_started(tmp_path: Path, size: int) -> None:
    path = tmp_path / "rank_0.ddptrace"
    path.write_bytes(bytes(size))
    with pytest.raises(TraceError, match=r"rank_0\.ddptrace: never started"):
        read_trace(path)
    # All of the header but the magic, which is written last.
    page = header_page(closed=0)
    page[:8] = bytes(8)
    path.write_bytes(page[: max(size, 8)])
    with pytest.raises(TraceError, match=r"rank_0\.ddptrace: never started"):
        read_trace(path)


def test_zeros_over_the_magic_of_a_used_trace_are_damage(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 1, 2, 3)
    with pytest.raises(TraceError, match="not a trace"):
        read_trace(patched(writer.write(tmp_path), 0, bytes(8)))


def test_trace_without_a_record_never_started(tmp_path: Path) -> None:
    trace = read_trace(RankWriter(closed=0).write(tmp_path))
    assert len(trace) == 0
    assert [text for _, text in trace.warnings] == ["never started: nothing was recorded."]


def test_traces_of_later_centuries_are_read(tmp_path: Path) -> None:
    """Nanoseconds since 1970 pass 2**61 in January 2043."""
    for wall_ns in (2**61 + 1, 2**62, 2**63 - 1):
        writer = RankWriter(wall_ns=wall_ns)
        writer.bucket(0, 1, 2, 3)
        assert read_trace(writer.write(tmp_path)).header.wall_ns == wall_ns


def test_wrong_magic(tmp_path: Path) -> None:
    path = patched(RankWriter().write(tmp_path), 0, b"PK\x03\x04")
    with pytest.raises(TraceError, match=r"rank_0\.ddptrace: not a trace"):
        read_trace(path)


def test_newer_major_says_which_version_was_found(tmp_path: Path) -> None:
    path = RankWriter(major=2, minor=3).write(tmp_path)
    with pytest.raises(TraceVersionError, match=r"rank_0\.ddptrace: format 2\.3.*reads format 1"):
        read_trace(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("capacity", 0), ("capacity", 2**63), ("record_bytes", 64), ("header_bytes", 0)],
        *[("world_size", 0), ("world_size", 2**31), ("rank", 7), ("wall_ns", -1)],
        ("monotonic_ns", 2**62),
    ],
)
def test_absurd_header_is_an_error_that_names_the_field(tmp_path: Path, field: str, value: int) -> None:
    path = tmp_path / "rank_0.ddptrace"
    path.write_bytes(header_page(**{"world_size": 4, field: value}) + bytes(128 * 64))
    with pytest.raises(TraceError, match=rf"rank_0\.ddptrace: damaged header: {field} is"):
        read_trace(path)


def test_damaged_byte_order_mark(tmp_path: Path) -> None:
    path = patched(RankWriter().write(tmp_path), 12, b"\x09\x09\x09\x09")
    with pytest.raises(TraceError, match="byte order"):
        read_trace(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "rank_0.ddptrace")


class Busy:
    """A file of slots of which one is rewritten after each reading, the first `times` times."""

    def __init__(self, slots: Records, times: int) -> None:
        self.slots, self.times = slots, times
        self.size = 4096 + slots.nbytes

    def read_into(self, target: memoryview, offset: int) -> int:
        raw = self.slots.view(np.uint8)[offset - 4096 :][: len(target)]
        target[: len(raw)] = raw
        if self.times > 0:
            self.times -= 1
            self.slots["word"][1] += np.uint64(4 * 8)
            self.slots["sequence"][1] += 8
        return len(raw)


def busy(times: int) -> tuple[PublishedRecords, Busy]:
    slots = np.zeros(8, reader_dtype())
    slots["word"] = (np.arange(8) + 1) << 2 | COMPLETE
    slots["sequence"] = np.arange(8)
    file = Busy(slots, times)
    header = parse_header(bytes(header_page(capacity=8, tickets=8)), Path("rank_0.ddptrace"))
    return PublishedRecords(file, header), file  # type: ignore[arg-type]


@pytest.mark.parametrize(("times", "kept", "torn"), [(0, 8, 0), (1, 8, 0), (2, 8, 0), (3, 8, 0), (99, 7, 1)])
def test_record_that_changes_under_the_reader_is_read_again(times: int, kept: int, torn: int) -> None:
    published, _ = busy(times)
    records = np.concatenate([piece.copy() for piece in published])
    assert (len(records), published.torn, published.astray) == (kept, torn, 0)
    assert records["sequence"].tolist() == tickets_of(records).tolist()


def test_record_whose_word_comes_after_its_bytes_is_not_believed() -> None:
    """The bytes of an old record, and the word of the new one that was published while they were copied."""
    published, file = busy(0)
    plain = file.read_into
    readings = 0

    def torn(target: memoryview, offset: int) -> int:
        nonlocal readings
        readings += 1
        if readings == 2:
            # The copy: first the bytes, then the writer goes by, then the word.
            got = plain(target, offset)
            file.slots["word"][1], file.slots["sequence"][1] = (9 + 1) << 2 | COMPLETE, 9
            np.frombuffer(target, reader_dtype())["word"][1] = file.slots["word"][1]
            return got
        return plain(target, offset)

    file.read_into = torn  # type: ignore[method-assign]
    records = np.concatenate([piece.copy() for piece in published])
    assert sorted(records["sequence"].tolist()) == sorted(tickets_of(records).tolist())
    assert 9 in records["sequence"]


def test_file_that_is_cut_short_between_two_readings(tmp_path: Path) -> None:
    """A map would kill this process (SIGBUS)."""
    writer = RankWriter(capacity=3 * PIECE)
    path = tmp_path / "rank_0.ddptrace"
    slots = np.zeros(writer.capacity, reader_dtype())
    slots["word"] = (np.arange(len(slots)) + 1) << 2 | COMPLETE
    slots["kind"] = 1
    page = bytes(header_page(capacity=len(slots), tickets=len(slots)))
    for left in (PIECE + 7, PIECE, 1, 0):
        path.write_bytes(page + slots.tobytes())
        with RegularFile(path) as file:
            published = PublishedRecords(file, parse_header(page, path))
            seen = 0
            for number, piece in enumerate(published):
                seen += len(piece)
                if number == 0:
                    os.truncate(path, 4096 + 128 * left)
        assert seen == max(PIECE, left)
        assert published.notes[0].startswith("truncated: it has ")
