"""Whether a run stands still: how far each rank has come and whom the others wait for, also before any training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pyddpdiag.analyse.bounds import MANY_STEPS, MOST, STILL_MS, UNKNOWN_STEP_MS
from pyddpdiag.model.ending import INTERRUPT
from pyddpdiag.model.findings import Finding, Verdict, culprit
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.start import Start
from pyddpdiag.model.steps import StepTable
from pyddpdiag.model.words import listed, ranks, sentence, verb
from pyddpdiag.trace.merge import Merged
from pyddpdiag.trace.run import Run

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


@dataclass(frozen=True)
class Progress:
    """One rank's counts.

    `buckets` is the highest sequence number that it began in each process group (by id). `complete`: each operation
    that it began lately has a record (none was paused or lost); older ones may have been overwritten.
    """

    rank: int
    buckets: Mapping[int, int]
    complete: bool


@dataclass(frozen=True)
class Awaited:
    """An operation in which ranks wait, and the ranks of its group that never began it.

    `kind` is `bucket` or `collective`, `what` the bucket's id or the collective's name, `step` None where it is not
    known. `unsure`: ranks that may or may not have begun it.
    """

    kind: str
    what: str
    step: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    unsure: tuple[int, ...] = ()


def progress(run: Run, merged: Merged) -> tuple[Progress, ...]:
    """The counts of every rank of the run."""
    highest: list[dict[int, int]] = [{} for _ in run.ranks]
    for key, ledger in merged.groups():
        for who, share in ledger.shares.items():
            highest[who][key] = int(share.high[-1])
    found = []
    for trace, buckets in zip(run.ranks, highest, strict=True):
        header = trace.header
        found.append(Progress(trace.rank, buckets, trace.is_whole and not header.skipped))
    return tuple(found)


def awaited_buckets(view: RunView) -> Iterator[Awaited]:
    """In each process group the first bucket that some rank began and did not end."""
    for key, ledger in view.merged.groups():
        waiting = {who: share.waiting for who, share in ledger.shares.items() if share.waiting is not None}
        if not waiting:
            continue
        first = min(waiting.values(), key=lambda one: one.sequence)
        missing: list[int] = []
        unsure: list[int] = []
        for who in view.memberships[key].members:
            one = view.progress[who]
            if one.buckets.get(key, -1) < first.sequence:
                # A paused rank, or one that lost records, may have begun what it has no record of.
                (missing if one.complete else unsure).append(one.rank)
        yield Awaited(
            "bucket",
            view.names.bucket(first.reference),
            first.step,
            tuple(view.progress[who].rank for who, one in waiting.items() if one.sequence == first.sequence),
            tuple(missing),
            tuple(unsure),
        )


@dataclass(frozen=True)
class Standstill:
    """Nothing was recorded on any rank for `silent_ms`, though some process is alive.

    `awaited` is the operation in which most ranks wait; None if no rank waits: they may evaluate, or write a
    checkpoint.
    """

    silent_ms: float
    awaited: Awaited | None


def threshold_ms(step_ms: float, least_ms: float = STILL_MS) -> float:
    """How long nothing must be recorded for a standstill; `step_ms` is the median step, NaN = not known."""
    return max(least_ms, MANY_STEPS * step_ms) if step_ms == step_ms else UNKNOWN_STEP_MS


def quiet_ms(view: RunView) -> float | None:
    """For how long no rank that may still run has recorded anything; None if there is none, or one is not known."""
    ranks = zip(view.ranks, view.now.ranks, strict=True)
    silent = [seen.silent_ms for rank, seen in ranks if not rank.closed and seen.alive is not False]
    known = [value for value in silent if value is not None]
    return min(known) if known and len(known) == len(silent) else None


def standstill(view: RunView, least_ms: float = STILL_MS) -> Standstill | None:
    """The standstill of a run; None if the run goes on, is over, or cannot be seen. A shorter silence is none."""
    silent = quiet_ms(view) if view.now.is_live else None
    if silent is None or silent < threshold_ms(view.judged.wall_ms, least_ms):
        return None
    return Standstill(silent, max(view.awaited, key=lambda one: len(one.waiting), default=None))


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
        ranks=(),
        buckets=(),
        verdict=Verdict("findings" if found else "cannot_tell", line, found),
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
