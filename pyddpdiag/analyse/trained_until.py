"""Until when what a rank recorded tells of its training: what comes after an end is evidence of the end only."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.operations import ENDED
from pyddpdiag.trace.layout import Flag
from pyddpdiag.trace.reader import RankTrace

ALWAYS: Final = int(np.iinfo(np.int64).max)
"""Nothing is cut: the rank came through all that it began with others."""

_SPOILED: Final = int(Flag.ERROR | Flag.ABANDONED)


def trained_until_ns(trace: RankTrace) -> int:
    """When a rank last came out of an operation with others, on its own clock, if it then got stuck or failed in one.

    From then on its connections are busy with what nobody takes, and it waits for what will not come. 0: it came out of
    none. `ALWAYS`: its last operations ended as they should.
    """
    good, stuck = 0, False
    ends = []
    for kind, ended in ENDED.items():
        records = trace.of_kind(kind)
        end = records["times"][:, ended]
        sound = (end > 0) & (records["flags"] & _SPOILED == 0)
        good = max(good, int(end[sound].max(initial=0)))
        ends.append(end[~sound])
    for end in ends:
        stuck |= bool(((end == 0) | (end > good)).any())
    return good if stuck else ALWAYS


__all__ = ["ALWAYS", "trained_until_ns"]
