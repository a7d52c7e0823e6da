"""Other collectives by process group, paired over the ranks that meet in them."""

import io
from pathlib import Path
from typing import Any

import pytest
from support.reported import report_of
from support.trace_writer import GROUP, IN_FLIGHT, MS, RankWriter

from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report, print_report
from pyddpdiag.trace.run import open_run

OTHER = 0xAB
SECOND = 10**9


def write(
    folder: Path, *, late_ms: int = 0, sizes: dict[int, int] | None = None, buckets: bool = True
) -> None:
    """Four ranks in two groups of two, each with a bucket per step and ten all-reduces of its own.

    Rank 3 comes `late_ms` after its peer. Only every second record of a worker names its group.
    """
    groups = [(GROUP, (0, 1)), (OTHER, (2, 3))]
    for rank in range(4):
        writer = RankWriter(rank, 4)
        writer.sidecar["groups"] = [
            {"id": f"{key:016x}", "name": f"group {key:x}", "backend": "gloo", "ranks": list(ranks)}
            for key, ranks in groups
        ]
        key, _ = groups[rank // 2]
        for number in range(10):
            begin = SECOND + number * 100 * MS
            if buckets:
                writer.bucket(number, begin, begin, begin + MS, group=key)
            came = begin + 10 * MS + (late_ms * MS if rank == 3 else 0)
            writer.collective(
                "gloo:all_reduce",
                came,
                begin + (12 + late_ms) * MS,
                group=key if number % 2 else 0,
                thread=70 + rank,
                bytes=(sizes or {}).get(rank, 64),
                dtype=1,
                step=number,
                sequence=number,
            )
        # Of a worker that has carried no bucket.
        writer.collective("gloo:all_reduce", 5 * SECOND, 5 * SECOND + MS, thread=99, sequence=10)
        writer.write(folder)


def rows(report: RunReport) -> dict[tuple[int, str | None], tuple[int, float | None]]:
    return {(row.rank, row.group): (row.count, row.wait_ms) for row in report.other_collectives}


@pytest.mark.parametrize("buckets", [True, False], ids=["buckets", "no buckets"])
def test_a_worker_tells_the_group_of_all_its_collectives(tmp_path: Path, buckets: bool) -> None:
    write(tmp_path, late_ms=8, buckets=buckets)
    counts = rows(load_report(tmp_path))
    first, second = f"group {GROUP:x}", f"group {OTHER:x}"
    assert counts == {
        (0, first): (10, 0.0),
        (1, first): (10, 0.0),
        (2, second): (10, pytest.approx(8.0)),
        (3, second): (10, 0.0),
        **{(rank, None): (1, None) for rank in range(4)},
    }
    out = io.StringIO()
    print_report(tmp_path, file=out, every_rank=True)
    assert second in out.getvalue() and "waits" in out.getvalue()


def test_a_thread_of_two_groups_tells_nothing(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        writer.sidecar["groups"].append(
            {"id": f"{OTHER:016x}", "name": "1", "backend": "gloo", "ranks": [0, 1]}
        )
        for number, key in enumerate((GROUP, OTHER, 0)):
            begin = SECOND + number * MS
            writer.collective("gloo:barrier", begin, begin + 10, group=key, thread=7, sequence=number)
        writer.write(tmp_path)
    assert {row.group for row in load_report(tmp_path).other_collectives} == {"0", "1", None}


def test_a_run_of_one_group_has_one_row_for_all_workers(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for number in range(6):
            begin = SECOND + number * MS
            group = GROUP if number % 2 else 0
            writer.collective(
                "gloo:barrier", begin, begin + 10, group=group, thread=number % 2, sequence=number
            )
        writer.write(tmp_path)
    assert rows(load_report(tmp_path)) == {(0, None): (6, 0.0), (1, None): (6, 0.0)}


def test_calls_that_nobody_can_pair_have_no_wait(tmp_path: Path) -> None:
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for number in range(4 + rank):
            begin = SECOND + number * MS
            writer.collective("gloo:all_reduce", begin, begin + 10, sequence=number)
            writer.collective("gloo:broadcast", begin, begin + 10, sequence=number)
        writer.write(tmp_path)
    assert {row.wait_ms for row in load_report(tmp_path).other_collectives} == {None}


def test_different_calls_are_reported_with_their_group(tmp_path: Path) -> None:
    write(tmp_path, sizes={2: 128})
    (mismatch,) = load_report(tmp_path).mismatches
    seen = (mismatch.group, mismatch.field, mismatch.values)
    assert seen == (f"group {OTHER:x}", "bytes", {2: "128", 3: "64"})


def meet(folder: Path, missing: int, *, named: bool = True, since: int = 0) -> RunView:
    """Ranks 0 and 1 make six all-reduces, 1 and 2 four; one rank's last one in the latter group is missing.

    By name alone rank 2 has always called fewest. `since`: the first call of which there is a record.
    """
    groups = {GROUP: ((0, 1), 6), OTHER: ((1, 2), 4)}
    for rank in range(3):
        writer = RankWriter(rank, 3)
        writer.sidecar["groups"] = [
            {"id": f"{key:016x}", "name": f"group {key:x}", "backend": "gloo", "ranks": list(ranks)}
            for key, (ranks, _) in groups.items()
        ]
        called = 0
        for key, (ranks, calls) in groups.items():
            for number in range(calls if rank in ranks else 0):
                last = key == OTHER and number == calls - 1
                if last and rank == missing:
                    continue
                begin = SECOND + called * 10 * MS
                state = {"state": IN_FLIGHT} if last and missing in ranks else {}
                if called >= since:
                    writer.collective(
                        "gloo:all_reduce",
                        begin,
                        0 if state else begin + MS,
                        group=key if named else 0,
                        thread=rank * 10 + (key == OTHER),
                        sequence=called,
                        **state,
                    )
                called += 1
        writer.write(folder)
    return RunView(open_run(folder))


def test_a_rank_is_missing_from_its_groups_collective(tmp_path: Path) -> None:
    """Rank 2 called fewer all-reduces than all others; rank 1 is the one that its peer waits for."""
    (found,) = meet(tmp_path, missing=1).awaited
    assert (found.what, found.waiting, found.missing, found.unsure) == ("gloo:all_reduce", (2,), (1,), ())


@pytest.mark.parametrize(("how", "unsure"), [({"named": False}, (0, 1)), ({"since": 2}, (1,))])
def test_counts_that_are_not_known_by_group_blame_nobody(
    tmp_path: Path, how: dict[str, Any], unsure: tuple[int, ...]
) -> None:
    (found,) = meet(tmp_path, missing=1, **how).awaited
    assert (found.waiting, found.missing, found.unsure) == ((2,), (), unsure)


def without_buckets(folder: Path, *, late_ms: float = 0.0, meeting: bool = True) -> RunReport:
    """Three ranks that meet in two collectives per step, or never; rank 1 needs `late_ms` more each time."""
    times = [SECOND] * 3
    writers = [RankWriter(rank, 3) for rank in range(3)]
    for step in range(60):
        begin = list(times)
        for call in range(2):
            came = [at + round((10 + (late_ms if rank == 1 else 0)) * MS) for rank, at in enumerate(times)]
            for rank, writer in enumerate(writers):
                done = (max(came) if meeting else came[rank]) + MS
                writer.collective("gloo:all_gather", came[rank], done, step=step, sequence=2 * step + call)
                times[rank] = done
        for rank, writer in enumerate(writers):
            writer.step(step, begin[rank], begin[rank], times[rank])
    return report_of(writers, folder)


def test_a_late_rank_is_named_without_any_bucket(tmp_path: Path) -> None:
    """As under FSDP; and the ranks that wait in the collective are not blamed."""
    (found,) = without_buckets(tmp_path, late_ms=6.0).verdict.findings
    assert (found.kind, found.rank, found.cause) == ("late_rank", 1, None)
    assert found.cost_ms == pytest.approx(12.0)


def test_ranks_that_never_meet_are_late_for_nobody(tmp_path: Path) -> None:
    report = without_buckets(tmp_path, late_ms=6.0, meeting=False)
    assert report.verdict.findings == () and report.verdict.status == "cannot_tell"


def test_without_buckets_no_run_is_called_healthy(tmp_path: Path) -> None:
    verdict = without_buckets(tmp_path).verdict
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "how long each rank waits there" in verdict.line
