"""The machine-readable summary of a run."""

from __future__ import annotations

import math
from typing import Any

from pyddpdiag.train.events import TrainResult

SCHEMA_VERSION = 1


def summary(result: TrainResult) -> dict[str, Any]:
    """What `pyddpdiag train --json` prints: losses per sample, accuracies in 0..1, times in seconds."""
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
    }
