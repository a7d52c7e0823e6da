"""The same training with several numbers of ranks: durations, speed-up, and where the missing part of it went."""

from __future__ import annotations

from pyddpdiag.scaling.series import parse_sizes, run

__all__ = ["parse_sizes", "run"]
