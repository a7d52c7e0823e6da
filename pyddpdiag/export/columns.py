"""A run as columns, for tables of other tools: steps, buckets, every occurrence of a bucket, ranks, links, findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints, overload

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.model.account import PARTS
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import BucketStats, RankStats
from pyddpdiag.model.stats import METRICS, BucketTimes, Stat

Columns = Mapping[str, Sequence[Any]]


class _Shown(Sequence[Any]):
    """The values of an array as Python's objects, made when they are asked for."""

    def __init__(self, values: npt.NDArray[Any], show: Callable[[npt.NDArray[Any]], list[Any]]) -> None:
        self._values, self._show = values, show

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._show(self._values[place])
        return self._show(self._values[[place]])[0]


def tables(report: RunReport, occurrences: Occurrences) -> dict[str, Columns]:
    """All tables by name."""
    return {
        "steps": steps(report),
        "buckets": buckets(report),
        "occurrences": occurrence_columns(report, occurrences),
        "ranks": ranks(report),
        "account": account(report),
        "links": links(report),
        "findings": findings(report),
    }


def steps(report: RunReport) -> Columns:
    """One row per step and rank."""
    table = report.steps
    times = (
        "wall_ms",
        "compute_ms",
        "data_wait_ms",
        "exposed_ms",
        "other_ms",
        "late_ms",
        "communication_ms",
        "own_ms",
    )
    return {
        "step": _each(table.step),
        "rank": _each(table.rank),
        **{name: _known(getattr(table, name)) for name in times},
        "buckets": _each(table.buckets),
        "bytes": _each(table.bytes),
        "judged": _each(table.judged),
    }


def buckets(report: RunReport) -> Columns:
    """One row per bucket; of times the median and the 95th percentile."""
    rows = report.buckets
    own = _by_field(BucketStats, rows, "parameters", "times", "last_arrivals", "shared_memory")
    times = _by_field(BucketTimes, [row.times for row in rows])
    return {**own, **times, "parameters": [" ".join(row.parameters) for row in rows]}


def occurrence_columns(report: RunReport, found: Occurrences) -> Columns:
    """One row per all-reduce of a bucket, over all ranks."""
    order = [rank.rank for rank in report.ranks]
    return {
        "step": _each(found.step),
        "bucket": _Shown(found.reference, lambda values: [f"{one:016x}" for one in values.tolist()]),
        "bytes": _each(found.bytes),
        "group_size": _each(found.group_size),
        "complete": _each(found.complete),
        **{name: _known(getattr(found, name)) for name in METRICS},
        "last_rank": _Shown(
            found.last_arriver,
            lambda values: [order[who] if who >= 0 else None for who in values.tolist()],
        ),
    }


def ranks(report: RunReport) -> Columns:
    """One row per rank; of times the median and the 95th percentile."""
    if not report.ranks:
        return {}
    clocks = [rank.clock for rank in report.ranks]
    return {
        **_by_field(RankStats, report.ranks, "clock"),
        "clock_offset_ms": [clock.offset_ms for clock in clocks],
        "clock_uncertainty_ms": [clock.uncertainty_ms for clock in clocks],
    }


def account(report: RunReport) -> Columns:
    """One row per rank: the seconds of its whole life, part by part."""
    return {name: [getattr(each, name) for each in report.account] for name in ("rank", "wall_s", *PARTS)}


def links(report: RunReport) -> Columns:
    """One row per link between two ranks."""
    return _by_field(LinkStats, report.links) if report.links else {}


def findings(report: RunReport) -> Columns:
    """One row per finding, without its evidence."""
    found, texts = report.verdict.findings, ("message", "advice")
    columns = _by_field(Finding, found, "evidence", "change_mind", "among", *texts)
    return columns | {name: [getattr(each, name) for each in found] for name in texts}


def _by_field(kind: Any, rows: Sequence[Any], *without: str) -> dict[str, Sequence[Any]]:
    """A column for each field of these dataclasses, and two for one that holds a median."""
    columns: dict[str, Sequence[Any]] = {}
    for name in [each.name for each in fields(kind) if each.name not in without]:
        values = [getattr(row, name) for row in rows]
        if get_type_hints(kind)[name] is Stat:
            columns[f"{name}_median"] = [value.median for value in values]
            columns[f"{name}_p95"] = [value.p95 for value in values]
        else:
            columns[name] = values
    return columns


def _each(values: npt.NDArray[Any]) -> Sequence[Any]:
    return _Shown(values, lambda some: some.tolist())


def _known(values: npt.NDArray[np.float64]) -> Sequence[float | None]:
    return _Shown(values, lambda some: [one if math.isfinite(one) else None for one in some.tolist()])
