"""Plain data that passes from the analysers to the renderers. Knows neither files nor torch."""

from pyddpdiag.model.findings import Finding, Verdict
from pyddpdiag.model.report import SCHEMA_VERSION, RunReport
from pyddpdiag.model.rows import (
    BucketStats,
    ClockStats,
    CollectiveStats,
    Gap,
    Mismatch,
    OpenOperation,
    OperationError,
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
    "Mismatch",
    "OpenOperation",
    "OperationError",
    "RankStats",
    "RunReport",
    "Stat",
    "StepTable",
    "Verdict",
]
