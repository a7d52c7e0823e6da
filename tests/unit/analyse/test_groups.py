"""Runs in which not all ranks meet: two groups of ranks that train side by side."""

from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import GROUP, write_training

from pyddpdiag.analyse.group_view import meeting
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report

OTHER = GROUP + 1


def side_by_side(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> RunReport:
    """The report of ranks 0 and 1 in one group and 2 and 3 in another, each as `write_training` is asked."""
    groups = [
        {"id": f"{GROUP:016x}", "name": "left", "backend": "gloo", "ranks": [0, 1]},
        {"id": f"{OTHER:016x}", "name": "right", "backend": "gloo", "ranks": [2, 3]},
    ]
    for place, (group, training) in enumerate(((GROUP, first), (OTHER, second))):
        for writer in write_training(folder / f"part{place}", world_size=2, steps=40, **training):
            writer.rank += 2 * place
            writer.world_size = 4
            writer.sidecar.update(rank=writer.rank, world_size=4, groups=groups)
            for module in writer.sidecar["modules"]:
                module["group"] = f"{group:016x}"
            for record in writer.records:
                record["group"] = group
            writer.write(folder / "run")
    return load_report(folder / "run")


@pytest.mark.parametrize(
    ("groups", "sets"),
    [
        ([], ()),
        ([(0, 1)], ((0, 1),)),
        ([(2, 3), (0, 1)], ((0, 1), (2, 3))),
        ([(0, 1), (2, 3), (1, 2)], ((0, 1, 2, 3),)),
        ([(0, 2), (1, 3), (4,)], ((0, 2), (1, 3), (4,))),
    ],
)
def test_ranks_meet_directly_or_through_others(
    groups: list[tuple[int, ...]], sets: tuple[tuple[int, ...], ...]
) -> None:
    assert meeting(groups) == sets


def test_a_slower_group_is_not_late_for_one_that_it_never_meets(tmp_path: Path) -> None:
    report = side_by_side(tmp_path, {}, {"compute_ms": 60.0})
    assert (report.verdict.status, report.verdict.findings) == ("healthy", ())
    assert report.verdict.line.count("among ranks 0, 1, ") == 1
    assert report.verdict.line.count("among ranks 2, 3, ") == 1


def test_a_late_rank_is_late_for_its_own_group(tmp_path: Path) -> None:
    report = side_by_side(tmp_path, {"compute_ms": 60.0}, {"late_ms": {1: 10.0}})
    (found,) = report.verdict.findings
    assert (found.kind, found.rank, found.among) == ("late_rank", 3, (2, 3))
    assert found.message.startswith("among ranks 2, 3, rank 3 is late: it needs 10.0 ms more")
    assert report.verdict.line.startswith("Among ranks 2, 3, rank 3 is late")


def test_each_group_has_its_own_trouble_and_costs(tmp_path: Path) -> None:
    report = side_by_side(tmp_path, {"wire_ms": 14.0}, {"data_wait_ms": 20.0})
    found = {(one.kind, one.among): one for one in report.verdict.findings}
    assert set(found) == {("exposed_communication", (0, 1)), ("data_wait", (2, 3))}
    assert found["data_wait", (2, 3)].cost_ms == pytest.approx(20, rel=0.1)


def test_one_rows_buckets_are_of_one_group(tmp_path: Path) -> None:
    report = side_by_side(tmp_path, {}, {"wire_ms": 3.0})
    rows = {(bucket.group, bucket.parameters): bucket for bucket in report.buckets}
    assert len(rows) == len(report.buckets) == 4
    assert {bucket.count for bucket in report.buckets} == {40}
    wires = {group: rows[group, ("layer0.weight",)].times.wire_ms.median for group in ("left", "right")}
    assert wires == {"left": pytest.approx(1.0), "right": pytest.approx(3.0)}
    assert report.gaps == () and not any(bucket.incomplete for bucket in report.buckets)
