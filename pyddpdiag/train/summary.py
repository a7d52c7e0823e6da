"""The machine-readable summary of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.train.events import TrainResult

SCHEMA_VERSION = 1
FILE: Final = "training.json"
"""Beside the trace: the page of a run shows its losses."""


def summary(result: TrainResult, low_use: Mapping[int, Finding] | None = None) -> dict[str, Any]:
    """What `pyddpdiag train --json` prints: losses per sample, accuracies in 0..1, times in seconds.

    `low_use`: why GPUs were used little, by rank; see `pipeline.explain_gpus`.
    """
    kept = ("world_size", "hook", "trace", "parameters", "buckets", "seconds", "dataset", "batch_size", "lr")
    found = {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(result, name) for name in (*kept, "data_wait_s", "accuracy")},
        "epochs": [asdict(epoch) for epoch in result.history],
        "gpus": [_gpu(use, (low_use or {}).get(use.rank)) for use in result.gpus],
    }
    return dict(_finite(found))


def keep(result: TrainResult) -> None:
    """Write the summary beside the trace, if there is one.

    Raises:
        OSError: the system's error; the training itself is done.
    """
    if result.trace is not None:
        text = json.dumps(summary(result), indent=2, allow_nan=False)
        Path(result.trace, FILE).write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _gpu(use: GpuUse, why: Finding | None) -> dict[str, Any]:
    reason = None
    if why is not None:
        reason = {
            "cause": why.evidence["reason"],
            "share": why.evidence["share"],
            "message": why.advice,
        }
    return {**asdict(use), "low_use": reason}
