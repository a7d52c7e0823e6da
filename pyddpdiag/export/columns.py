"""A run as columns, for tables of other tools: steps, buckets, every occurrence of a bucket, ranks, links, findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.model import METRICS, RunReport, Stat
from pyddpdiag.model.account import PARTS

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
    return {
        "step": _each(table.step),
        "rank": _each(table.rank),
        "wall_ms": _known(table.wall_ms),
        "compute_ms": _known(table.compute_ms),
        "data_wait_ms": _known(table.data_wait_ms),
        "exposed_ms": _known(table.exposed_ms),
        "other_ms": _known(table.other_ms),
        "late_ms": _known(table.late_ms),
        "communication_ms": _known(table.communication_ms),
        "own_ms": _known(table.own_ms),
        "buckets": _each(table.buckets),
        "bytes": _each(table.bytes),
        "judged": _each(table.judged),
    }


def buckets(report: RunReport) -> Columns:
    """One row per bucket; of times the median and the 95th percentile."""
    rows = report.buckets
    columns: dict[str, Sequence[Any]] = {
        name: [getattr(row, name) for row in rows]
        for name in (
            "bucket",
            "module",
            "bytes",
            "dtype",
            "gradient_dtype",
            "group",
            "group_size",
            "count",
            "judged",
        )
    }
    columns |= {
        name: [getattr(row, name) for row in rows]
        for name in ("incomplete", "first_step", "last_step", "first_steps_only", "cost_ms")
    }
    for name in METRICS:
        columns |= _stats(name, [getattr(row.times, name) for row in rows])
    columns["parameters"] = [" ".join(row.parameters) for row in rows]
    return columns


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
    columns: dict[str, Sequence[Any]] = {}
    for each in fields(report.ranks[0]) if report.ranks else ():
        values = [getattr(rank, each.name) for rank in report.ranks]
        if each.name == "clock":
            columns["clock_offset_ms"] = [clock.offset_ms for clock in values]
            columns["clock_uncertainty_ms"] = [clock.uncertainty_ms for clock in values]
        elif isinstance(values[0], Stat):
            columns |= _stats(each.name, values)
        else:
            columns[each.name] = values
    return columns


def account(report: RunReport) -> Columns:
    """One row per rank: the seconds of its whole life, part by part."""
    return {name: [getattr(each, name) for each in report.account] for name in ("rank", "wall_s", *PARTS)}


def links(report: RunReport) -> Columns:
    """One row per link between two ranks."""
    names = [each.name for each in fields(report.links[0])] if report.links else []
    return {name: [getattr(link, name) for link in report.links] for name in names}


def findings(report: RunReport) -> Columns:
    """One row per finding, without its evidence."""
    names = (
        "kind",
        "severity",
        "confidence",
        "rank",
        "peer",
        "bucket",
        "parameter",
        "since_step",
        "until_step",
        "cost_ms",
        "cost_s",
        "where",
        "cause",
    )
    found = report.verdict.findings
    columns: dict[str, Sequence[Any]] = {name: [getattr(each, name) for each in found] for name in names}
    return {**columns, "message": [each.message for each in found], "advice": [each.advice for each in found]}


def _stats(name: str, values: Sequence[Stat]) -> dict[str, Sequence[Any]]:
    return {
        f"{name}_median": [value.median for value in values],
        f"{name}_p95": [value.p95 for value in values],
    }


def _each(values: npt.NDArray[Any]) -> Sequence[Any]:
    return _Shown(values, lambda some: some.tolist())


def _known(values: npt.NDArray[np.float64]) -> Sequence[float | None]:
    return _Shown(values, lambda some: [one if math.isfinite(one) else None for one in some.tolist()])
