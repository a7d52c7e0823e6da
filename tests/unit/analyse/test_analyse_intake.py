"""A run is taken in rank by rank and piece by piece: what a report says depends on neither, nor does its memory."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.bulk_writer import write_bulk
from support.trace_writer import ERROR, IN_FLIGHT, MS, RankWriter, fnv, write_training

from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.pipeline import load_report, print_report
from pyddpdiag.report.json import report_to_json
from pyddpdiag.trace.run import open_run


def several_groups(folder: Path) -> None:
    """Two modules whose buckets are recorded in turn: one over all ranks, one over two of them."""
    pair = fnv(b"pair")
    for rank in range(4):
        writer = RankWriter(rank, 4)
        writer.sidecar["groups"].append({"id": f"{pair:016x}", "name": "pair", "ranks": [1, 3]})
        for step in range(9):
            begin = (step + 1) * 100 * MS
            for index in range(3):
                writer.bucket(
                    3 * step + index, begin + rank, begin + 5, begin + 9, reference=index, step=step
                )
                if rank in (1, 3):
                    writer.bucket(
                        3 * step + index, begin + rank, begin + 6, begin + 8, group=pair, module=1, step=step
                    )
            writer.backward(step, begin - MS, begin + 7, begin + 20)
            writer.backward(step, begin - MS, begin + 6, begin + 21, module=1)
            writer.collective("gloo:barrier", begin + 30, begin + 40 + rank, step=step)
        writer.write(folder)


def gaps(folder: Path) -> None:
    """Each rank has lost other records, one in the middle of a step."""
    for rank, writer in enumerate(write_training(folder, world_size=3, steps=14, buckets=3)):
        writer.records = [one for at, one in enumerate(writer.records) if at % 11 != 2 * rank + 1]
        writer.write(folder)


def overwritten(folder: Path) -> None:
    """The rings have kept different last parts."""
    for rank, writer in enumerate(write_training(folder, world_size=3, steps=20, buckets=3)):
        writer.capacity = 37 + 8 * rank
        writer.write(folder)


def in_flight(folder: Path) -> None:
    """Two ranks wait in a bucket that the third never began, another one failed."""
    for rank, writer in enumerate(write_training(folder, world_size=3, steps=8)):
        if rank != 1:
            writer.bucket(16, 10**10 + rank, 10**10 + 5, 0, state=IN_FLIGHT, step=8)
        ticket = writer.bucket(17, 10**10 + rank, 10**10 + 7, 10**10 + 9, flags=1, step=8)
        writer.add(ERROR, text=b"gone", reference=ticket)
        writer.write(folder)


def repeated(folder: Path) -> None:
    """All-reduces are recorded twice, far apart, and out of order."""
    for writer in write_training(folder, world_size=2, steps=10, buckets=2):
        for sequence in (3, 9, 0):
            writer.bucket(sequence, 10**10, 10**10 + 1, 10**10 + 2, step=sequence)
        writer.write(folder)


def mismatched(folder: Path) -> None:
    """From the fifth all-reduce on, one rank's buckets are larger; later the first rank's are."""
    for rank, writer in enumerate(write_training(folder, world_size=4, steps=10, buckets=2)):
        for record in writer.records:
            large = record["sequence"] >= (5 if rank == 2 else 9 if rank == 0 else 1000)
            if record["kind"] == 1 and large:
                record["bytes"] += 4096
        writer.write(folder)


def other_clocks(folder: Path) -> None:
    """Three clocks, two ranks on one of them."""
    clocks = {1: ("b", 5_000_000_000, 1000), 2: ("b", 5_000_000_000, 900), 3: ("c", -900_000_000, 0)}
    write_training(folder, world_size=4, clocks=clocks, jitter_ms=0.5, late_ms={2: 3.0})


def on_devices(folder: Path) -> None:
    """A device is awaited at the first bucket of a step, and until after the host is done."""
    for rank, writer in enumerate(write_training(folder, buckets=3, jitter_ms=0.5)):
        for record in writer.records:
            if record["kind"] == 1:
                record["flags"] |= 8
                first = record["sequence"] % 3 == 0
                record["times"][5] = record["times"][2] + (900_000 if first and rank else 8_000)
        writer.write(folder)


RUNS = (several_groups, gaps, overwritten, in_flight, repeated, mismatched, other_clocks, on_devices)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_report_does_not_depend_on_the_pieces(tmp_path: Path, run: object, rows: int) -> None:
    assert callable(run)
    run(tmp_path)
    intake = Intake(rows)
    pieces = report_to_json(analyse(RunView(open_run(tmp_path, visit=intake.take), intake)))
    whole = Intake(10**6)
    assert pieces == report_to_json(analyse(RunView(open_run(tmp_path, visit=whole.take), whole)))
    # Also if all records are in memory before the first rank is taken in.
    assert pieces == report_to_json(analyse(RunView(open_run(tmp_path))))


def test_a_mismatch_is_reported_for_every_rank_that_has_the_all_reduce(tmp_path: Path) -> None:
    mismatched(tmp_path)
    (found,) = load_report(tmp_path).mismatches
    assert (found.field, found.sequence, found.count) == ("bytes", 5, 15)
    assert found.values == {0: "4000000", 1: "4000000", 2: "4004096", 3: "4000000"}


def test_records_are_not_kept(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3)
    seen = []
    run = open_run(tmp_path, visit=lambda trace: seen.append((trace.rank, len(trace.of_kind(1)))))
    assert seen == [(0, 24), (1, 24), (2, 24)]
    assert all(not trace.by_kind and len(trace) == 48 for trace in run.ranks)


def test_memory_grows_with_all_reduces_and_steps_and_not_with_records(tmp_path: Path) -> None:
    """Two million records of 64 ranks, 256 MB on disk. Kept whole, they alone were more than the bound."""
    written = write_bulk(tmp_path, ranks=64, records=2_000_000)
    tracemalloc.start()
    try:
        report = load_report(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(rank.records for rank in report.ranks) == written > 1_990_000
    assert [finding.kind for finding in report.verdict.findings][:1] == ["late_rank"]
    assert peak < 100_000_000, f"{peak / 1e6:.0f} MB"


def test_work_grows_no_faster_than_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers that medians are taken of and that are sorted: a count, because times say nothing on a busy machine."""
    looked_at = 0
    real = {name: getattr(np, name) for name in ("median", "sort", "isnan")}

    def counting(name: str) -> Callable[..., object]:
        def counted(values: npt.ArrayLike, *args: object, **options: object) -> object:
            nonlocal looked_at
            looked_at += np.size(values)
            return real[name](values, *args, **options)

        return counted

    for name in real:
        monkeypatch.setattr(np, name, counting(name))
    amounts = []
    for ranks in (32, 64, 128):
        folder = tmp_path / str(ranks)
        write_bulk(folder, ranks=ranks, records=ranks * 240)
        looked_at = 0
        assert print_report(folder) == 1
        amounts.append(looked_at)
        assert f"Rank {ranks - 1} is late" in capsys.readouterr().out
    assert amounts[2] - amounts[1] < 2.2 * (amounts[1] - amounts[0]), amounts


def test_medians_of_many_groups_are_those_of_each(tmp_path: Path) -> None:
    from pyddpdiag.analyse.grouped import stats_by

    random = np.random.default_rng(0)
    for groups, amount in ((1, 500), (3, 999), (300, 700), (70_000, 90_000)):
        codes = random.integers(0, groups, amount)
        values = np.where(random.random(amount) < 0.1, np.nan, random.normal(size=amount))
        found = stats_by(values, codes, groups)
        for group in range(0, groups, max(1, groups // 20)):
            mine = values[(codes == group) & ~np.isnan(values)]
            if len(mine):
                assert found[group].median == pytest.approx(np.median(mine))
                assert found[group].p95 == pytest.approx(np.quantile(mine, 0.95))
            else:
                assert found[group].median is None
