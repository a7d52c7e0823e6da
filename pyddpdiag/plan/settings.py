"""What is asked of a plan, and what it answers: plain values, as the JSON has them."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pyddpdiag.errors import UsageError
from pyddpdiag.plan.ring import Path

SCHEMA_VERSION: Final = 1

Limit = Literal["latency", "bandwidth", "slowest rank"]
"""What a step of many ranks takes beyond that of one: rounds of the ring, bytes, or waiting for the slowest rank."""


@dataclass(frozen=True)
class Link:
    """A link that replaces the recorded one; None: as it was fitted to the run."""

    ms_per_byte: float | None = None
    latency_ms: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether anything of it is."""
        return self.ms_per_byte is not None or self.latency_ms is not None


@dataclass(frozen=True)
class Row:
    """One setting. `step_ms` with its interval, and `exposed_ms` of it; None with the reason in `cannot_tell`.

    `ranks`, `bucket_cap_mb` (None: the recorded layout, or a size of each bucket in `bucket_cap_mb_list`), `path` and
    `straggler` (False: without) are the setting. `kind` is `recorded` (measured), `replayed` (the run itself, by the
    model) or `planned`. `efficiency`: the step of one of its ranks alone over this one.
    """

    kind: str
    setting: str
    ranks: int
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()
    path: Path = "gloo"
    straggler: bool = True
    buckets: int | None = None
    step_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    exposed_ms: float | None = None
    efficiency: float | None = None
    cannot_tell: str = ""


@dataclass(frozen=True)
class ScalingPoint:
    """So many ranks: their step, and their throughput over that of a rank alone."""

    ranks: int
    step_ms: float
    throughput: float


@dataclass(frozen=True)
class Scaling:
    """Throughput by number of ranks, with the recorded buckets.

    Attributes:
        alone_ms: the step of a rank alone.
        points: of 1, 2, 4, ... ranks.
        ends_at: so many ranks; beyond, twice the ranks give less than 1.5 times the throughput. None: it does not end.
        limit: what takes most of the step of twice as many; None: it does not end.
        limit_ms: how much of it.
    """

    alone_ms: float
    points: tuple[ScalingPoint, ...] = ()
    ends_at: int | None = None
    limit: Limit | None = None
    limit_ms: float | None = None


@dataclass(frozen=True)
class Plan:
    """All rows. `cannot_tell`: why there is none at all. `missed_fraction`: by how much the replay missed the run.

    `wire_pace`, `compute_pace`: how fast buckets and ranks go on while both do, of what they are alone; None: not
    known. `scaling`: None: other numbers of ranks cannot be told.
    """

    folder: str
    rows: tuple[Row, ...] = ()
    cannot_tell: str = ""
    steps: int = 0
    missed_fraction: float | None = None
    round_ms: float | None = None
    bandwidth_gbit: float | None = None
    wire_pace: float | None = None
    compute_pace: float | None = None
    scaling: Scaling | None = None

    @property
    def tells(self) -> bool:
        """Whether it answers anything that was asked."""
        planned = [row for row in self.rows if row.kind == "planned"]
        # The row without the straggler comes unasked.
        asked = [row for row in planned if row.straggler] or planned
        return any(row.step_ms is not None for row in asked)

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract (docs/plan.md)."""
        return {"schema_version": SCHEMA_VERSION, "kind": "plan", **asdict(self)}


MOST_RANKS: Final = 4096

_BITS: Final = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def ranks_of(text: str) -> tuple[int, ...]:
    """Numbers of ranks, in the order given, each once.

    Raises:
        UsageError: it is not that.
    """
    found = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[0-9]{1,6}\s*", part) or not 1 <= int(part) <= MOST_RANKS:
            raise UsageError(
                f"--ranks {text}: '{part.strip()}' is no number of ranks from 1 to {MOST_RANKS}.",
                hint="for example --ranks 2,8,64.",
            )
        found.append(int(part))
    return tuple(dict.fromkeys(found))


def caps_of(text: str) -> tuple[tuple[float, ...], ...]:
    """Bucket layouts in the order given, each once: a size in MiB for all buckets, or one for each as `1:4:25`.

    Raises:
        UsageError: it is not that.
    """
    found = []
    for part in text.split(","):
        values = [_number(each) for each in part.split(":")]
        sizes = tuple(value for value in values if value is not None and value > 0)
        if len(sizes) < len(values):
            raise UsageError(
                f"--bucket-cap-mb {text}: '{part.strip()}' is no size above 0.",
                hint="in MiB, for example --bucket-cap-mb 5,25, or 1:4:25 for a size of each bucket.",
            )
        found.append(sizes)
    return tuple(dict.fromkeys(found))


def ms_per_byte_of(text: str) -> float:
    """A bandwidth such as 10Gbit (per second), as milliseconds for each byte.

    Raises:
        UsageError: it is not that.
    """
    return 8e3 / _with_unit(text, _BITS, "--bandwidth", "a rate above 0", "--bandwidth 10Gbit")


def latency_ms_of(text: str) -> float:
    """A latency such as 0.2ms.

    Raises:
        UsageError: it is not that.
    """
    return _with_unit(text, _MS, "--latency", "a time above 0", "--latency 0.2ms")


def _with_unit(text: str, units: dict[str, float], option: str, what: str, example: str) -> float:
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)(?:/s)?\s*", text, re.IGNORECASE)
    value = _number(match.group(1)) if match else None
    unit = units.get(match.group(2).lower()) if match else None
    if value is None or unit is None or value <= 0:
        raise UsageError(
            f"{option} {text}: this is not {what} in {', '.join(units)}.", hint=f"for example {example}."
        )
    return value * unit


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
