"""Gradients that a script averages after DDP has: a part of a rank's sidecar."""

from __future__ import annotations

from dataclasses import dataclass


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
