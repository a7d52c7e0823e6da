"""Names, other collectives, errors, operations in flight, gaps and mismatches."""

from pathlib import Path

from support.reported import report_of
from support.trace_writer import GROUP, IN_FLIGHT, MS, RankWriter

from pyddpdiag.pipeline import load_report


def test_parameters_are_named_from_the_sidecar_in_the_buffers_order(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.sidecar["modules"] = [{"index": 0, "parameters": [{"name": "a"}, {"name": "b"}]}]
    writer.sidecar["buckets"] = [
        {"id": f"{7:016x}", "module": 0, "parameters": [1, 0, 5], "dtype": "float32"}
    ]
    writer.bucket(0, 1, 2, 3)
    bucket = report_of([writer], tmp_path).buckets[0]
    assert bucket.parameters == ("b", "a", "module0.param5")
    assert (bucket.bucket, bucket.dtype) == ("0000000000000007", "float32")


def test_several_modules_prefix_their_parameters(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.sidecar["modules"] = [{"index": i, "parameters": [{"name": "weight"}]} for i in range(2)]
    writer.sidecar["buckets"] = [{"id": f"{7:016x}", "module": 1, "parameters": [0]}]
    writer.bucket(0, 1, 2, 3, module=1)
    assert report_of([writer], tmp_path).buckets[0].parameters == ("module1.weight",)


def test_sidecar_of_any_rank_will_do(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.sidecar["modules"] = [{"index": 0, "parameters": [{"name": "a"}]}]
        writer.sidecar["buckets"] = [{"id": f"{7:016x}", "module": 0, "parameters": [0]}]
        writer.bucket(0, 1, 2, 3)
        writer.write(tmp_path, sidecar=rank == 1)
    report = load_report(tmp_path)
    assert report.buckets[0].parameters == ("a",)
    assert [rank.host for rank in report.ranks] == ["", "host1"]


def test_other_collectives_by_name_and_rank(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for took in (1, 2, 9):
            writer.collective("gloo:broadcast", 100 * MS, (100 + took + rank) * MS)
        writer.collective("gloo:barrier", 200 * MS, 0, state=IN_FLIGHT)
        writer.write(tmp_path)
    found = {(c.name, c.rank): c for c in load_report(tmp_path).other_collectives}
    assert len(found) == 4
    one = found["gloo:broadcast", 1]
    assert (one.count, one.median_ms, one.in_flight) == (3, 3.0, 0)
    assert one.total_ms == 15.0
    barrier = found["gloo:barrier", 0]
    assert (barrier.count, barrier.median_ms, barrier.p95_ms, barrier.in_flight) == (1, None, None, 1)


def test_error_text_is_joined_even_within_a_character(tmp_path: Path) -> None:
    text = "x" * 63 + "\u00e9" + "Connection reset by peer [10.0.0.2]:4321 " * 4
    writer = RankWriter(2, 4)
    ticket = writer.bucket(5, 1, 2, 3, flags=1, step=3)
    writer.error(ticket, text)
    report = report_of([writer], tmp_path)
    assert report.errors_total == 1
    error = report.errors[0]
    seen = (error.rank, error.kind, error.what, error.step, error.sequence)
    assert seen == (2, "bucket", f"{7:016x}", 3, 5)
    assert error.text == text
    assert report.ranks[0].errors == 1


def test_error_parts_whose_first_was_overwritten_still_show(tmp_path: Path) -> None:
    writer = RankWriter()
    ticket = writer.bucket(5, 1, 2, 3, flags=1)
    writer.add(6, text=b"the end of it", reference=ticket, index=3)
    assert report_of([writer], tmp_path).errors[0].text == "the end of it"


def test_operations_in_flight(tmp_path: Path) -> None:
    writer = RankWriter(closed=0)
    writer.bucket(0, 10 * MS, 11 * MS, 12 * MS)
    writer.bucket(1, 20 * MS, 0, 0, state=IN_FLIGHT, step=1)
    writer.collective("gloo:barrier", 30 * MS, 0, state=IN_FLIGHT)
    writer.bucket(2, 35 * MS, 36 * MS, 0, flags=64, step=2)
    writer.step(2, 15 * MS, 16 * MS, 0, state=IN_FLIGHT)
    report = report_of([writer], tmp_path)
    assert report.in_flight_total == report.ranks[0].in_flight == 3
    one, two, three = report.in_flight_operations
    seen = (one.kind, one.sequence, one.started, one.abandoned, one.open_ms)
    assert seen == ("bucket", 1, False, False, 16.0)
    assert (two.kind, two.what, two.started, two.open_ms) == ("collective", "gloo:barrier", True, 6.0)
    assert (three.abandoned, three.started) == (True, True)


def test_bucket_that_ended_and_waits_to_be_consumed_is_not_in_flight(tmp_path: Path) -> None:
    writer = RankWriter(closed=0)
    writer.bucket(0, 10 * MS, 11 * MS, 12 * MS, state=IN_FLIGHT)
    report = report_of([writer], tmp_path)
    assert report.ranks[0].in_flight == 0
    assert report.buckets[0].count == 1


def test_gaps_before_between_and_after(tmp_path: Path) -> None:
    for rank, sequences in enumerate((range(10), (2, 3, 6, 7))):
        writer = RankWriter(rank, 2)
        for sequence in sequences:
            writer.bucket(sequence, 10, 20, 30)
        writer.write(tmp_path)
    report = load_report(tmp_path)
    (gap,) = report.gaps
    assert (gap.rank, gap.before, gap.between, gap.after) == (1, 2, 2, 2)
    assert (gap.last_sequence, gap.group_last_sequence, gap.group) == (7, 9, "0")
    assert any("rank 1 has no record of some all-reduces" in warning for warning in report.warnings)


def test_rank_that_never_joined_a_group(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        if rank == 0:
            writer.bucket(0, 10, 20, 30)
        writer.write(tmp_path)
    (gap,) = load_report(tmp_path).gaps
    assert (gap.rank, gap.after, gap.last_sequence) == (1, 1, None)


def test_mismatched_bytes_and_dtype(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.bucket(0, 10, 20, 30)
        writer.bucket(1, 40, 50, 60, bytes=100 + rank, dtype=1 + rank)
        writer.write(tmp_path)
    found = {mismatch.field: mismatch for mismatch in load_report(tmp_path).mismatches}
    assert set(found) == {"bytes", "dtype"}
    assert found["bytes"].values == {0: "100", 1: "101"}
    assert found["dtype"].values == {0: "float32", 1: "float64"}
    assert (found["bytes"].sequence, found["bytes"].count) == (1, 1)


def test_buckets_are_listed_by_what_they_cost(tmp_path: Path) -> None:
    writer = RankWriter()
    for sequence, (reference, took) in enumerate(((1, 5), (2, 50), (1, 5), (3, 20), (1, 5))):
        begin = (1 + sequence) * 1000 * MS
        writer.bucket(sequence, begin, begin, begin + took * MS, reference=reference, step=1)
    buckets = report_of([writer], tmp_path).buckets
    assert [int(bucket.bucket, 16) for bucket in buckets] == [2, 3, 1]
    assert [bucket.cost_ms for bucket in buckets] == [50.0, 20.0, 15.0]


def test_groups_are_named(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.bucket(0, 1, 2, 3)
    writer.bucket(0, 1, 2, 3, group=GROUP + 1, reference=8)
    writer.bucket(0, 1, 2, 3, group=0, reference=9)
    assert {b.group for b in report_of([writer], tmp_path).buckets} == {"0", f"{GROUP + 1:016x}", "unknown"}
