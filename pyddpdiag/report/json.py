"""The report as JSON. Its keys and units are a contract (docs/metrics.md), enforced by a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import SCHEMA_VERSION, RunReport
from pyddpdiag.model.rows import BucketStats, RankStats
from pyddpdiag.model.steps import StepTable

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
    apart = ("step", "bucket", "steps", "verdict", "ranks", "buckets", "tried", "flames", "cube")
    return {
        "schema_version": SCHEMA_VERSION,
        **{
            each.name: _as_json(getattr(report, each.name))
            for each in fields(report)
            if each.name not in apart
        },
        "only_step": report.step,
        "only_bucket": report.bucket,
        "verdict": {
            **_as_json(report.verdict),
            "findings": [_finding(finding) for finding in report.verdict.findings],
        },
        "ranks": [_rank(rank) for rank in report.ranks],
        "buckets": [_bucket(bucket) for bucket in report.buckets],
        "steps_source": report.steps.source,
        "steps_left_out": list(report.steps.left_out),
        "steps": _steps(report.steps, detailed),
        "steps_without_ranks": 0 if detailed is None else len(np.unique(report.steps.step)) - len(detailed),
        "tried": report.tried and {"verdict": report.tried.verdict, **_as_json(report.tried)},
        "units": UNITS,
    }


def _as_json(value: Any) -> Any:
    """A value of a report as dictionaries, lists, numbers and strings."""
    if is_dataclass(value):
        return {each.name: _as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, tuple) else value


def _finding(finding: Finding) -> dict[str, Any]:
    kind = kind_of(finding)
    return {**_as_json(finding), "family": kind.family, "short": kind.in_short(finding)}


def _rank(rank: RankStats) -> dict[str, Any]:
    clock = {f"clock_{name}": value for name, value in _as_json(rank.clock).items()}
    return {name: value for name, value in _as_json(rank).items() if name != "clock"} | clock


def _bucket(bucket: BucketStats) -> dict[str, Any]:
    own: dict[str, Any] = _as_json(bucket)
    times: dict[str, Any] = own.pop("times")
    return own | times


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
