"""What the steps' time went to, with the findings that explain it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Charge:
    """Time of the judged steps that is charged to one rank, or to all alike (`rank` None), in one part of a step.

    `part` is one of `model.cube.CHARGED`, `share` is of all judged steps. `explained_by`: kinds of the findings that
    account for some of it, the most important first, and `explained_s` what they account for. The charges of a run add
    up to its judged steps, as these are on average over the ranks, but for those below a hundredth, which are left out.
    """

    rank: int | None
    part: str
    seconds: float
    share: float
    explained_s: float = 0.0
    explained_by: tuple[str, ...] = ()
