"""Settings of torch that help to debug a training and slow it down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import torch

_SETTINGS: Final[Mapping[str, Callable[[], bool]]] = {
    "anomaly_detection": torch.is_anomaly_enabled,
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "profiler": lambda: torch.autograd.profiler._is_profiler_enabled,
}


class Debugging:
    """Which of them were on when somebody asked; torch tells nobody when they change."""

    def __init__(self) -> None:
        self._seen = Counter[str]()

    def now(self) -> dict[str, int]:
        """As `debugging` in the sidecar: those that are on, as 2, and those that were on at an earlier look, as 1.

        Of the profiler, which is meant for a few steps, at how many looks it was on: they come ever more rarely.
        """
        on = {name for name, is_on in _SETTINGS.items() if is_on()}
        self._seen.update(on)
        found = {name: 2 if name in on else 1 for name in _SETTINGS if name in self._seen}
        return found | ({"profiler": self._seen["profiler"]} if "profiler" in found else {})
