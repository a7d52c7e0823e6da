"""Looks at a run that may be stuck or dead, within a few seconds, and says who holds it up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyddpdiag.errors import TraceError
from pyddpdiag.live.judge import is_settled, judge
from pyddpdiag.live.look import look
from pyddpdiag.live.ranks import judge_begun
from pyddpdiag.live.stacks import stacks_of
from pyddpdiag.live.state import Hang
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.starts import read_starts

LIMIT_S: Final = 4.0
"""For the whole answer, stacks included."""

LOOKING_S: Final = 2.0
"""The longest time between the first look and the last one."""

BETWEEN_S: Final = 0.4
LEAST_BETWEEN_S: Final = 0.05
LEAST_STACKS_S: Final = 0.5


def hang(
    folder: Path, *, stacks: bool = True, limit_s: float = LIMIT_S, looking_s: float = LOOKING_S
) -> Hang:
    """Say whether a run moves, is over, is stuck or died, and who is to blame. Ends nothing and waits for nobody.

    Args:
        folder: where the recorders write.
        stacks: show the stacks of the ranks in question, where py-spy is there and allowed.
        limit_s: for the whole answer.
        looking_s: the longest time between the first look and the last one; more where the folder is a copy that is
            renewed from time to time.

    Raises:
        TraceError: there are no traces, or none can be read.
    """
    begin = time.monotonic()
    try:
        first = last = look(folder)
    except TraceError:
        attempt, _ = choose_attempt(folder)
        starts = read_starts(attempt)
        if not starts:
            raise
        found = judge_begun(attempt, starts, time.monotonic() - begin)
        return _with_stacks(found, stacks, limit_s, begin)
    end = time.monotonic() + min(looking_s, limit_s / 2)
    while not is_settled(last):
        left = end - time.monotonic()
        # There is a second look even where this process got no core for so long.
        if left <= 0 and last is not first:
            break
        time.sleep(min(BETWEEN_S, max(left, LEAST_BETWEEN_S)))
        last = look(folder, last)
    looked = time.monotonic() - begin
    moving = frozenset() if last is first else last.moved_since(first)
    return _with_stacks(judge(last, moving, looked), stacks, limit_s, begin)


def _with_stacks(found: Hang, stacks: bool, limit_s: float, begin: float) -> Hang:
    if not stacks or not found.suspects:
        return found
    left = limit_s - (time.monotonic() - begin)
    return replace(found, stacks=stacks_of(found, max(LEAST_STACKS_S, left)))
