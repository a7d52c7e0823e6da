"""The machine-readable summary of a run."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from pyddpdiag.model import RunReport
from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.gpu_use import GpuUse, explain

SCHEMA_VERSION = 1


def summary(result: TrainResult, report: RunReport | None = None) -> dict[str, Any]:
    """What `pyddpdiag train --json` prints: losses per sample, accuracies in 0..1, times in seconds.

    Args:
        result: of the run.
        report: of its trace, to explain GPUs that are used little; None if there is none.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "world_size": result.world_size,
        "hook": result.hook,
        "trace": result.trace,
        "parameters": result.parameters,
        "buckets": result.buckets,
        "seconds": result.seconds,
        "dataset": result.dataset,
        "batch_size": result.batch_size,
        "lr": result.lr if math.isfinite(result.lr) else None,
        "data_wait_s": result.data_wait_s,
        "accuracy": result.accuracy if math.isfinite(result.accuracy) else None,
        "epochs": [
            {
                "epoch": epoch.epoch,
                "train_loss": epoch.train_loss,
                "test_loss": epoch.test_loss,
                "accuracy": epoch.accuracy,
                "seconds": epoch.seconds,
            }
            for epoch in result.history
        ],
        "gpus": [_gpu(use, report) for use in result.gpus],
    }


def _gpu(use: GpuUse, report: RunReport | None) -> dict[str, Any]:
    reason = explain(use, report)
    return {
        **asdict(use),
        "low_use": None if reason is None else {**asdict(reason), "message": str(reason)},
    }
