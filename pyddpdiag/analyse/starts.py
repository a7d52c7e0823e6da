"""A run that has no trace yet: where its ranks are, and for whom they wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MOST, UNKNOWN_STEP_MS
from pyddpdiag.model.ending import INTERRUPT
from pyddpdiag.model.findings import Finding, Verdict, culprit
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.start import Start
from pyddpdiag.model.steps import StepTable
from pyddpdiag.model.words import listed, ranks, sentence, verb

_GROUPS: Final = 4


def judge_starts(starts: Sequence[Start]) -> tuple[str, tuple[Finding, ...]]:
    """Where the ranks are, in a sentence, and whom the others wait for, if that is known."""
    found = tuple(waited_for(starts))
    if found:
        return sentence(found[0].message), found
    over = _is_over(starts)
    said = "; ".join(_at(starts, over))
    return sentence(f"cannot tell: no rank {'trained' if over else 'trains yet'}. {sentence(said)}."), ()


def report_of_starts(folder: Path, starts: Sequence[Start]) -> RunReport:
    """The report of a run that has no trace."""
    line, found = judge_starts(starts)
    whole, real = np.empty(0, np.int64), np.empty(0)
    return RunReport(
        folder=str(folder),
        run_id="",
        world_size=max(start.world_size for start in starts),
        verdict=Verdict("findings" if found else "cannot_tell", line, found),
        ranks=(),
        buckets=(),
        steps=StepTable(whole, whole, *(real,) * 6, whole, whole, "step records", ()),
        other_collectives=(),
        in_flight_operations=(),
        in_flight_total=0,
        errors=(),
        errors_total=0,
        gaps=(),
        mismatches=(),
        warnings=(),
    )


def waited_for(starts: Sequence[Start]) -> Iterator[Finding]:
    """The ranks that do something of their own while others wait for them, or that ended."""
    waiting = [start for start in starts if start.waits_in]
    own = [start for start in starts if not start.waits_in]
    over = _is_over(starts)
    waited_s = max((start.for_s for start in waiting), default=0.0)
    failed = [start for start in own if start.error and not _interrupted(start)]
    gone = [start for start in own if start.process == "dead"]
    if failed:
        first = failed[0]
        yield Finding(
            kind="rank_lost",
            severity="error",
            message=f"{_which(failed)} ended before any training, by {first.error.rstrip('.')}.",
            confidence="high",
            rank=first.rank if len(failed) == 1 else None,
            where=first.where or None,
            evidence={"waiting": len(waiting), "waited_s": waited_s},
            change_mind="Another rank failed first, and its note is not here.",
            advice="Look at this rank's own output.",
        )
        return
    # A wait that failed was long enough; without one, the start of a process takes each rank another time.
    given_up = any(start.error and not _interrupted(start) for start in waiting)
    if not waiting or not (given_up or 1e3 * waited_s >= UNKNOWN_STEP_MS):
        return
    if not own:
        yield from _apart(starts, over)
        return
    stuck = own if over else [start for start in own if start.process != "dead"]
    who = gone if gone and not over else stuck
    if not who:
        return
    first, numbers = max(who, key=lambda start: start.for_s), [start.rank for start in who]
    at = listed(dict.fromkeys(_line(start) for start in who), _GROUPS)
    if who is gone:
        said = f"{verb(numbers, 'is', 'are')} gone: it was last at {at}"
    else:
        been = verb(numbers, "was", "were") if over else f"{verb(numbers, 'has', 'have')} been"
        said = f"{been} at {at} for {first.for_s:.0f} s"
    wait = "waited" if over else verb([start.rank for start in waiting], "waits", "wait")
    places = (start.waits_in + (f" ({start.where})" if start.where else "") for start in waiting)
    dump = "" if over or who is gone else f"Look at what it does: py-spy dump --pid {first.pid}. "
    yield Finding(
        kind="rank_lost" if who is gone else "rank_stuck",
        severity="error",
        message=f"{ranks(numbers)} {said}, before any training: {_which(waiting)} {wait} for it in "
        f"{listed(dict.fromkeys(places), _GROUPS)}.",
        confidence="high" if len({_line(start) for start in who}) == 1 else "medium",
        rank=culprit(numbers),
        where=first.where or None,
        evidence={"waiting": len(waiting), "waited_s": waited_s, "own_s": first.for_s},
        change_mind="It does something long on purpose there, and goes on.",
        advice=f"{dump}Download, unpack and index data before the ranks are started; a lock file that a killed process "
        "has left must be removed.",
    )


def _apart(starts: Sequence[Start], over: bool) -> Iterator[Finding]:
    """All ranks wait, and in calls that do not belong together."""
    calls = dict.fromkeys(start.waits_in for start in starts)
    waited_s = [start.for_s for start in starts]
    # Who has only just come to an earlier call is late, and on its way to the other one.
    if (
        len(calls) < 2
        or min(waited_s) < MOST * max(waited_s)
        or len(starts) < max(one.world_size for one in starts)
    ):
        return
    yield Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"the ranks {'waited' if over else 'wait'} for each other in different calls, before any training: "
        f"{'; '.join(_at(starts, over))}.",
        confidence="high",
        evidence={"calls": len(calls), "waited_s": max(waited_s)},
        change_mind="One of them only came late there, and the others had given up.",
        advice="Every rank has to make the same calls in the same order. All of them have to call dist.new_group, also "
        "those that are not in the new group.",
    )


def _at(starts: Sequence[Start], over: bool) -> Iterator[str]:
    """Where the ranks are; those at one place together."""
    places: dict[tuple[str, str], list[Start]] = {}
    for start in starts:
        places.setdefault((_line(start), start.waits_in), []).append(start)
    for (line, call), here in places.items():
        numbers = [start.rank for start in here]
        be = verb(numbers, "was", "were") if over else verb(numbers, "is", "are")
        for_s = max(start.for_s for start in here)
        yield f"{ranks(numbers)} {be} at {line}" + (f" in {call}" if call else "") + f" for {for_s:.0f} s"


def _line(start: Start) -> str:
    return start.where or "no line of the script"


def _which(starts: Iterable[Start]) -> str:
    return ranks([start.rank for start in starts])


def _is_over(starts: Sequence[Start]) -> bool:
    return all(start.process == "dead" for start in starts)


def _interrupted(start: Start) -> bool:
    return start.error.startswith(INTERRUPT)
