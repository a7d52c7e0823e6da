"""What follows from a trial of cures, in the same words wherever it is said: text, JSON, page, watch, rank 0's line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pyddpdiag.model.paired import MARGIN

Verdict = Literal["faster", "nothing to gain", "nothing to gain for sure", "could not judge", "not over"]
"""`faster`: the best cure is, for sure. `nothing to gain`: no cure is, and none could save more than 2% of a step.
`nothing to gain for sure`: none is for sure, but one might save more. `not over`: the trial goes on, or was
interrupted."""

NOTHING: Final = ("nothing to gain", "nothing to gain for sure")


def verdict_of(*, over: bool, best: bool, judged: bool, lows: Iterable[float | None]) -> Verdict:
    """The verdict of a trial.

    Args:
        over: whether it came to its end.
        best: whether it names a best cure.
        judged: whether anything follows from it.
        lows: of each cure that was not left, the lower end of its ratio's interval; None: not known.
    """
    if best:
        return "faster"
    if not over:
        return "not over"
    if not judged:
        return "could not judge"
    least = min((1.0 if low is None else low for low in lows), default=1.0)
    return "nothing to gain" if least >= 1 - MARGIN else "nothing to gain for sure"


__all__ = ["NOTHING", "Verdict", "verdict_of"]
