"""Gradients that a script averages after DDP has: a part of a rank's sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import needed_text, needed_whole

_LIMIT: Final = 300  # letters


@dataclass(frozen=True)
class AveragedAgain:
    """Of one module.

    Attributes:
        looks: steps of its optimizers, after a pass in which DDP averaged, that were looked at.
        times: in how many of these the script reduced all gradients once more, over the same ranks or some of them.
        calls, bytes: of the script's `all_reduce` in the last of these steps.
        op: with which operation (`SUM`).
        where: the line of the script; empty: not known.
    """

    looks: int
    times: int = 0
    calls: int = 0
    bytes: int = 0
    op: str = ""
    where: str = ""


def averaged_again_from_json(entry: Any) -> AveragedAgain:
    """An entry of a sidecar. It may fail as the readers of the other entries do."""
    looks, times, calls, size = (needed_whole(entry[name]) for name in ("looks", "times", "calls", "bytes"))
    op, where = (needed_text(entry[name], _LIMIT) for name in ("op", "where"))
    return AveragedAgain(looks, times, calls, size, op, where)


__all__ = ["AveragedAgain", "averaged_again_from_json"]
