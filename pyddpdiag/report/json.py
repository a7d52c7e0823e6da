"""The report as JSON. Its keys and units are a contract (docs/metrics.md), enforced by a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from pyddpdiag.model import SCHEMA_VERSION, BucketStats, Finding, RankStats, RunReport, StepTable
from pyddpdiag.model.kinds import kind_of

INDENTED_STEPS: Final = 1000
ROWS: Final = 50_000
"""Rows of one step and rank: 10 MB of text."""
_OF_RANK: Final = (
    "rank",
    "wall_ms",
    "compute_ms",
    "data_wait_ms",
    "exposed_ms",
    "other_ms",
    "own_ms",
    "buckets",
    "bytes",
)

UNITS: Final = {
    "*_ms": "milliseconds",
    "*_s": "seconds",
    "*_gbps": "GB/s, 10^9 bytes per second",
    "*_fraction": "0 to 1",
    "bytes": "bytes",
}


def report_to_json(report: RunReport, *, detail: bool = False) -> str:
    """The report as one JSON object. ASCII only; never NaN or Infinity; `detail` as in `report_to_dict`."""
    # Nobody reads a long run's steps line by line, and indentation triples size and time.
    indent = 2 if len(report.steps) <= INDENTED_STEPS else None
    return json.dumps(report_to_dict(report, detail=detail), indent=indent, allow_nan=False)


def report_to_dict(report: RunReport, *, detail: bool = False) -> dict[str, Any]:
    """The report as plain dictionaries, lists, numbers and strings.

    Args:
        report: what to show.
        detail: the ranks' times of every step, however many; else of about `ROWS` rows, in steps spread evenly.
    """
    detailed = None if detail else _detailed(report.steps, ROWS)
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": report.folder,
        "run_id": report.run_id,
        "world_size": report.world_size,
        "only_step": report.step,
        "only_bucket": report.bucket,
        "verdict": {
            "status": report.verdict.status,
            "line": report.verdict.line,
            "findings": [_finding(finding) for finding in report.verdict.findings],
        },
        "ranks": [_rank(rank) for rank in report.ranks],
        "buckets": [_bucket(bucket) for bucket in report.buckets],
        "steps_source": report.steps.source,
        "steps_left_out": list(report.steps.left_out),
        "steps": _steps(report.steps, detailed),
        "steps_without_ranks": 0 if detailed is None else len(np.unique(report.steps.step)) - len(detailed),
        "other_collectives": [asdict(collective) for collective in report.other_collectives],
        "links": [asdict(link) for link in report.links],
        "lines": [asdict(line) for line in report.lines],
        "groups": [{**asdict(group), "ranks": list(group.ranks)} for group in report.groups],
        "parts": [asdict(each) for each in report.parts],
        "account": [asdict(each) for each in report.account],
        "phases": [asdict(phase) for phase in report.phases],
        "tried": None if report.tried is None else {"verdict": report.tried.verdict, **asdict(report.tried)},
        "in_flight_total": report.in_flight_total,
        "in_flight_operations": [asdict(operation) for operation in report.in_flight_operations],
        "errors_total": report.errors_total,
        "errors": [asdict(error) for error in report.errors],
        "gaps": [asdict(gap) for gap in report.gaps],
        "mismatches": [
            {**asdict(mismatch), "values": _by_rank(mismatch.values)} for mismatch in report.mismatches
        ],
        "warnings": list(report.warnings),
        "units": UNITS,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    kind = kind_of(finding)
    return {**asdict(finding), "family": kind.family, "short": kind.in_short(finding)}


def _rank(rank: RankStats) -> dict[str, Any]:
    fields = asdict(rank)
    clock = fields.pop("clock")
    return {
        **fields,
        "clock_offset_ms": clock["offset_ms"],
        "clock_uncertainty_ms": clock["uncertainty_ms"],
        "clock_inconsistent": clock["inconsistent"],
    }


def _bucket(bucket: BucketStats) -> dict[str, Any]:
    fields = asdict(bucket)
    times = fields.pop("times")
    own = {"parameters": list(bucket.parameters), "last_arrivals": _by_rank(bucket.last_arrivals)}
    return {**fields, **own, **times}


def _by_rank(values: Mapping[int, Any]) -> dict[str, Any]:
    return {str(rank): value for rank, value in values.items()}


def _steps(steps: StepTable, detailed: set[int] | None) -> list[dict[str, Any]]:
    """One entry per step, in those of `detailed` (None: all) with one per rank. Its wall time is its slowest rank's."""
    numbers, begin = np.unique(steps.step, return_index=True)
    if not len(numbers):
        return []
    walls = _plain(np.fmax.reduceat(steps.wall_ms, begin))
    buckets = np.maximum.reduceat(steps.buckets, begin).tolist()
    left_out = set(steps.left_out)
    found = [
        {"step": step, "wall_ms": wall, "buckets": most, "judged": step not in left_out, "ranks": []}
        for step, wall, most in zip(numbers.tolist(), walls, buckets, strict=True)
    ]
    chosen = slice(None) if detailed is None else np.flatnonzero(np.isin(steps.step, list(detailed)))
    at = np.searchsorted(numbers, steps.step[chosen]).tolist()
    columns = [_plain(getattr(steps, name)[chosen]) for name in _OF_RANK]
    for place, *row in zip(at, *columns, strict=True):
        found[place]["ranks"].append(dict(zip(_OF_RANK, row, strict=True)))
    return found


def _detailed(steps: StepTable, rows: int) -> set[int] | None:
    """The steps whose ranks are shown so that there are about `rows` rows: spread evenly; None: all."""
    if len(steps) <= rows:
        return None
    numbers, ranks = np.unique(steps.step, return_counts=True)
    many = max(1, rows // int(ranks.max()))
    return set(numbers[np.linspace(0, len(numbers) - 1, min(many, len(numbers))).astype(np.int64)].tolist())


def _plain(values: Any) -> list[Any]:
    """A column as Python numbers, None for NaN."""
    if values.dtype.kind != "f":
        return list(values.tolist())
    return [None if value != value else value for value in values.tolist()]
