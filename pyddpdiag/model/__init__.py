"""Plain data that the analysers pass to the renderers. Knows neither files nor torch."""

from pyddpdiag.model.findings import Finding, Verdict
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.lines import LineStats
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.now import Now, ProcessEnd, ProcessStatus, RankNow
from pyddpdiag.model.report import SCHEMA_VERSION, RunReport
from pyddpdiag.model.rows import (
    BucketStats,
    ClockStats,
    CollectiveStats,
    Gap,
    GroupStats,
    Mismatch,
    OpenOperation,
    OperationError,
    PhaseStats,
    RankStats,
)
from pyddpdiag.model.stats import METRICS, BucketTimes, Stat
from pyddpdiag.model.steps import StepTable

__all__ = [
    "METRICS",
    "SCHEMA_VERSION",
    "BucketStats",
    "BucketTimes",
    "ClockStats",
    "CollectiveStats",
    "Finding",
    "Gap",
    "GpuUse",
    "GroupStats",
    "LineStats",
    "LinkStats",
    "Mismatch",
    "Now",
    "OpenOperation",
    "OperationError",
    "PhaseStats",
    "ProcessEnd",
    "ProcessStatus",
    "RankNow",
    "RankStats",
    "RunReport",
    "Stat",
    "StepTable",
    "Verdict",
]
