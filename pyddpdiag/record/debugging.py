"""Settings of torch that help to debug a training and slow it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

_SETTINGS: Final[Mapping[str, Callable[[], bool]]] = {
    "anomaly_detection": torch.is_anomaly_enabled,
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
}


class Debugging:
    """Which of them were on when somebody asked; torch tells nobody when they change."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def now(self) -> dict[str, int]:
        """As `debugging` in the sidecar: those that are on, as 2, and those that were on at an earlier look, as 1."""
        on = {name for name, is_on in _SETTINGS.items() if is_on()}
        self._seen |= on
        return {name: 2 if name in on else 1 for name in _SETTINGS if name in self._seen}


__all__ = ["Debugging"]
