"""The parts of a comparison: plain data, shown as text, JSON, HTML and chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from pyddpdiag.bench.intervals import Estimate, Word
from pyddpdiag.bench.results import Entry

PARTS: Final = ("compute_s", "data_wait_s", "exposed_s", "arrival_s", "queue_s", "wire_s")


@dataclass(frozen=True)
class Series:
    """The results of one file, or of one system in it."""

    label: str
    entries: tuple[Entry, ...]
    about: str = ""

    def facts(self) -> str:
        """System, processor and torch, as the entries say; `about` of a run."""
        texts = [self.about] if self.about else []
        for key in ("system", "cpu", "device", "torch"):
            values = sorted({str(e.extra_info[key]) for e in self.entries if e.extra_info.get(key)})
            if values:
                texts.append(("torch " if key == "torch" else "") + " and ".join(values))
        return ", ".join(texts)


@dataclass(frozen=True)
class Pair:
    """One case in the first series and in another.

    Attributes:
        kind: `step`, `allreduce` or `scaling`.
        case: its name, without what differs between systems.
        base, other: labels of the two series.
        base_s, other_s: medians.
        ratio: other over base, with its interval.
        word: what that means for the other.
        parts: seconds of other minus base, by part of a step, or of a whole training if `kind` is `scaling`; only
            where both files know them.
        cause: the part that makes most of the difference, as a phrase; "" if there is none or it is unknown.
        why: the reason for `cannot tell`.
        settings: the parts of `case`, "" for one that it leaves out; empty: it has none.
    """

    kind: str
    case: str
    base: str
    other: str
    base_s: float
    other_s: float
    ratio: Estimate
    word: Word
    parts: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""
    why: str = ""
    settings: tuple[str, ...] = ()


Change = Literal["more", "less", "no difference", "cannot tell"]


@dataclass(frozen=True)
class PartChange:
    """The step of the slowest rank, a part of it or a bucket, in the first run and in another: medians in ms, and their
    difference with its interval.

    `why` is the reason for `cannot tell`.
    """

    base: str
    other: str
    part: str
    base_ms: float
    other_ms: float
    difference_ms: Estimate
    word: Change
    why: str = ""


@dataclass(frozen=True)
class Scaling:
    """A row of the article's table: durations by number of ranks, and what follows from them.

    `speedup` is against 1 rank; for steps, whose work grows with the ranks, in samples per second. `efficiency` is
    the speed-up over the number of ranks. `reference`: published figures, not the user's.
    """

    label: str
    what: str
    duration_s: Mapping[int, float]
    speedup: Mapping[int, float]
    efficiency: Mapping[int, float]
    reference: bool = False


@dataclass(frozen=True)
class Curve:
    """A training's loss over its time."""

    label: str
    elapsed_s: tuple[float, ...]
    loss: tuple[float, ...]
    accuracy: tuple[float | None, ...]


@dataclass(frozen=True)
class Comparison:
    """Everything that a comparison shows, independent of its presentation."""

    series: tuple[Series, ...]
    pairs: tuple[Pair, ...]
    scaling: tuple[Scaling, ...]
    curves: tuple[Curve, ...]
    only: Mapping[str, tuple[str, ...]]
    source: str = ""
    notes: tuple[str, ...] = ()
    changes: tuple[PartChange, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As plain dictionaries, for JSON."""
        return {
            "schema_version": 1,
            "series": [{"label": s.label, "facts": s.facts()} for s in self.series],
            "pairs": [asdict(pair) for pair in self.pairs],
            "scaling": [asdict(row) for row in self.scaling],
            "curves": [asdict(curve) for curve in self.curves],
            "only": {label: list(cases) for label, cases in self.only.items()},
            "reference_source": self.source,
            "notes": list(self.notes),
            "changes": [asdict(change) for change in self.changes],
        }
