"""Reads what `pyddpdiag train` writes beside the trace: the loss after each epoch. Optional and never trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.details import Loss
from pyddpdiag.system.regular_file import RegularFile

NAME: Final = "training.json"
_LIMIT: Final = 2**22
_EPOCHS: Final = 10_000


def read_loss(folder: Path) -> Loss | None:
    """The losses of the training that recorded into this folder; None if none were written, or they cannot be read."""
    try:
        with RegularFile(folder / NAME) as file:
            raw = json.loads(file.read(0, _LIMIT))
        epochs = [epoch for epoch in raw["epochs"] if isinstance(epoch, dict)][:_EPOCHS]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    elapsed, at = [], 0.0
    for epoch in epochs:
        at += _number(epoch.get("seconds")) or 0.0
        elapsed.append(at)
    columns = {
        name: tuple(_number(epoch.get(name)) for epoch in epochs)
        for name in ("train_loss", "test_loss", "accuracy")
    }
    return Loss(epoch=tuple(range(1, len(epochs) + 1)), elapsed_s=tuple(elapsed), **columns)


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) and abs(value) < 1e12 else None
