"""The report as JSON, and back. Its keys and units are a contract (docs/metrics.md), enforced by a test."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from pyddpdiag.errors import ReportFileError
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import SCHEMA_VERSION, RunReport
from pyddpdiag.model.rows import BucketStats, RankStats
from pyddpdiag.model.stats import METRICS
from pyddpdiag.model.steps import StepTable
from pyddpdiag.output import clean

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

    `detail`: the ranks' times of every step, however many; else of about `ROWS` rows, in steps spread evenly.
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


BYTES_LIMIT: Final = 2**30
_HINT: Final = "give a file that `pyddpdiag report DIR --json` wrote."

T = TypeVar("T")


def read_report(path: Path) -> RunReport:
    """The report in a JSON file. Unknown keys are ignored.

    Raises:
        ReportFileError: it cannot be read, is not JSON, lacks something, or has another schema version.
    """
    name = clean(str(path))
    try:
        if path.stat().st_size > BYTES_LIMIT:
            raise ReportFileError(
                f"'{name}' is larger than {BYTES_LIMIT >> 20} MiB: that is not a report.", hint=_HINT
            )
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportFileError(f"cannot read '{name}': {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ReportFileError(f"'{name}' is not complete JSON.", hint=_HINT) from error
    try:
        return report_from_dict(raw)
    except _MisfitError as error:
        raise ReportFileError(f"'{name}' is not a saved report: {error}.", hint=_HINT) from None


def report_from_dict(raw: Any) -> RunReport:
    """The inverse of `report_to_dict`.

    Raises:
        ReportFileError: the schema version is another one.
        ValueError: something is missing or of another type; the message says where.
    """
    top = _object(raw, "it")
    version = top.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ReportFileError(
            f"the report's schema_version is {clean(repr(version)[:40])}, and this version reads {SCHEMA_VERSION}.",
            hint="read it with the version of pyddpdiag that wrote it, or make the report again from the traces.",
        )
    shown = {
        **top,
        "step": top.get("only_step"),
        "bucket": top.get("only_bucket"),
        "ranks": [_rank_of(each) for each in _list(top.get("ranks"), "ranks")],
        "buckets": [_bucket_of(each) for each in _list(top.get("buckets"), "buckets")],
        "steps": _steps_of(top),
        "warnings": [*_list(top.get("warnings"), "warnings"), *_left_out(top)],
    }
    return _make(RunReport, shown, "")


def _rank_of(raw: Any) -> RankStats:
    entry = _object(raw, "ranks")
    clock = {name: entry.get(f"clock_{name}") for name in ("offset_ms", "uncertainty_ms", "inconsistent")}
    return _make(RankStats, {**entry, "clock": clock}, "ranks.")


def _bucket_of(raw: Any) -> BucketStats:
    entry = _object(raw, "buckets")
    return _make(BucketStats, {**entry, "times": {name: entry.get(name) for name in METRICS}}, "buckets.")


def _steps_of(top: Mapping[str, Any]) -> StepTable:
    """Back to one row per step and rank."""
    rows = [
        (_value(int, _object(step, "steps").get("step"), "steps.step"), _object(row, "steps.ranks"))
        for step in _list(top.get("steps"), "steps")
        for row in _list(_object(step, "steps").get("ranks"), "steps.ranks")
    ]

    def column(name: str, kind: Any) -> Any:
        values = [_value(kind, row.get(name), f"steps.ranks.{name}") for _, row in rows]
        if kind is int:
            return np.array(values, np.int64)
        return np.array([np.nan if value is None else value for value in values], np.float64)

    return StepTable(
        step=np.array([step for step, _ in rows], np.int64),
        rank=column("rank", int),
        **{
            name: column(name, float | None)
            for name in ("wall_ms", "compute_ms", "data_wait_ms", "exposed_ms", "other_ms", "own_ms")
        },
        buckets=column("buckets", int),
        bytes=column("bytes", int),
        source=_value(str, top.get("steps_source"), "steps_source"),
        left_out=_value(tuple[int, ...], top.get("steps_left_out"), "steps_left_out"),
    )


def _left_out(top: Mapping[str, Any]) -> list[str]:
    """What to know of a file that does not hold the ranks' times of every step."""
    without = _value(int, top.get("steps_without_ranks", 0), "steps_without_ranks")
    if not without:
        return []
    every = len(_list(top.get("steps"), "steps"))
    return [
        f"the saved report holds the ranks' times of {every - without} of {every} steps, spread evenly; what is said "
        "of single steps is of these. pyddpdiag report --json --detail saves all."
    ]


class _MisfitError(ValueError):
    """Something is missing or of another type."""


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _MisfitError(f"{where} should hold an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _MisfitError(f"{where} should be a list")
    return value


def _make(kind: type[T], raw: Any, where: str) -> T:
    """An instance of the dataclass `kind` from an object with its fields as keys."""
    entry = _object(raw, where.rstrip(".") or "it")
    hints = get_type_hints(kind)
    values = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in entry:
            values[each.name] = _value(hints[each.name], entry[each.name], f"{where}{each.name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise _MisfitError(f"{where}{each.name} is missing")
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    """`value` converted to the type `hint`; supports only the types that reports consist of."""
    if isinstance(hint, type) and is_dataclass(hint):
        # Values that were already built above have the right type.
        return value if isinstance(value, hint) else _make(hint, value, f"{where}.")
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return tuple(_value(inner[0], each, where) for each in _list(value, where))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            _key(inner[0], key, where): _value(inner[1], each, where)
            for key, each in _object(value, where).items()
        }
    if origin in (Union, types.UnionType):
        for choice in inner:
            try:
                return _value(choice, value, where)
            except _MisfitError:
                continue
    elif origin is Literal:
        if value in inner:
            return value
    elif hint is type(None):
        if value is None:
            return None
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(value, hint):
        return value
    raise _MisfitError(f"{where} is {clean(repr(value)[:40])}")


def _key(hint: Any, key: str, where: str) -> Any:
    if hint is not int:
        return key
    try:
        return int(key)
    except ValueError:
        raise _MisfitError(f"{where} has the key {clean(repr(key)[:40])}") from None
