"""What the report says of the way that buckets took: in shared memory or over Gloo, and why."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.run.buckets import parts
from pyddpdiag.report.tables import Table
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.layout import Flag

WHY = "rank 1 of the group cannot use the memory of rank 0: Permission denied"


def _run(folder: Path, *, shared: int, outcome: str) -> RunReport:
    """Two buckets per step, `shared` of them in shared memory: 1 ms until all have come, 3 ms until all sum, 6 ms."""
    for rank in range(2):
        writer = RankWriter(rank, 2, closed=1)
        if outcome:
            writer.sidecar["groups"][0]["shared_memory"] = outcome
        for step in range(12):
            now = (1 + step) * 100 * MS
            writer.step(step, now, now + MS, now + 60 * MS)
            writer.backward(step, now, now + 30 * MS, now + 56 * MS)
            for place in range(2):
                begin = now + (20 + 15 * place) * MS
                writer.bucket(
                    2 * step + place,
                    begin + rank * MS,
                    begin + 4 * MS,
                    begin + 10 * MS,
                    reference=7 + place,
                    step=step,
                    flags=int(Flag.SHARED) if place < shared else 0,
                )
        writer.write(folder)
    return load_report(folder)


def _text(report: RunReport) -> str:
    stream = io.StringIO()
    print_text(report, stream, tables=True)
    return " ".join(stream.getvalue().split())


def test_a_group_that_uses_it(tmp_path: Path) -> None:
    report = _run(tmp_path, shared=2, outcome="used")
    [group] = report.groups
    assert (group.ranks, group.backend, group.shared_memory) == ((0, 1), "gloo", "used")
    assert (group.buckets, group.shared_buckets) == (2, 2)
    # 1 ms of arrival and 3 ms of queue, of 10 ms.
    assert group.waiting_fraction == pytest.approx(0.4)
    assert group.summing_fraction == pytest.approx(0.6)
    assert all(bucket.shared_memory for bucket in report.buckets)
    assert "Buckets in shared memory (40% of their time waiting, 60% summing)." in _text(report)


def test_some_buckets_of_a_group(tmp_path: Path) -> None:
    report = _run(tmp_path, shared=1, outcome="used")
    [group] = report.groups
    assert (group.buckets, group.shared_buckets) == (2, 1)
    assert {bucket.bucket[-1]: bucket.shared_memory for bucket in report.buckets} == {"7": True, "8": False}
    assert "Buckets 1 of 2 in shared memory" in _text(report)


def test_a_group_that_cannot(tmp_path: Path) -> None:
    report = _run(tmp_path, shared=0, outcome=WHY)
    [group] = report.groups
    assert (group.shared_buckets, group.waiting_fraction, group.summing_fraction) == (0, None, None)
    assert f"Buckets over Gloo: {WHY}." in _text(report)


def test_nobody_asked(tmp_path: Path) -> None:
    report = _run(tmp_path, shared=0, outcome="")
    assert report.groups[0].shared_memory == ""
    assert "Gloo:" not in _text(report)
    assert "shared memory" not in _text(report)
    assert not [
        part for part in parts(report, None) if isinstance(part, Table) and "way of each" in part.title
    ]


def test_the_page_has_a_row_for_each_group(tmp_path: Path) -> None:
    for outcome, shared, way in (("used", 2, "in shared memory"), (WHY, 0, WHY)):
        report = _run(tmp_path / outcome[:4], shared=shared, outcome=outcome)
        [table] = [
            part for part in parts(report, None) if isinstance(part, Table) and "way of each" in part.title
        ]
        [[cells, _]] = table.rows()
        assert cells[1] == "0, 1"
        assert way in str(cells[-1])
