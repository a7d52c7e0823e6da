"""What follows from a trial of cures, in the same words wherever it is said: text, JSON, page, watch, rank 0's line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pyddpdiag.model.paired import MARGIN

Verdict = Literal["faster", "nothing to gain", "no sure gain", "could not judge", "not over"]
"""`faster`: the best cure is, for sure. `nothing to gain`: no cure is, and none could save more than 2% of a step.
`no sure gain`: none is for sure, but one might save more. `could not judge`: of no cure enough is known. `not over`:
the trial goes on, or was interrupted."""

NOTHING: Final = ("nothing to gain", "no sure gain")


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
    every = list(lows)
    # Of a cure without an interval, nothing is known: neither that it saves something, nor that it does not.
    surely_nothing = all(low is not None and low >= 1 - MARGIN for low in every)
    return "nothing to gain" if surely_nothing else "no sure gain"


def judges(known: Iterable[bool], left: Iterable[bool]) -> bool:
    """Whether something follows from a trial: of one cure an interval is known, or all cost too much.

    Args:
        known: of each cure, whether its interval is.
        left: of each cure, whether it got no more turns.
    """
    every = list(left)
    return any(known) or (bool(every) and all(every))


__all__ = ["NOTHING", "Verdict", "judges", "verdict_of"]
