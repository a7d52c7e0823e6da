"""The ranks put different things into one all-reduce, or into another collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyddpdiag.analyse.batches import out_of_batches
from pyddpdiag.analyse.calls.different import UnequalCalls
from pyddpdiag.analyse.calls.reductions import DifferentReductions, different_reductions
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.settings import odd_ones
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.explain import explain
from pyddpdiag.model.ending import End
from pyddpdiag.model.findings import Confidence, Finding, culprit
from pyddpdiag.model.rows import Mismatch
from pyddpdiag.model.words import count, listed, ranks, verb
from pyddpdiag.output import clean

_MISSED: Final = "The recorder missed a call on one rank, or the calls were in different process groups."
_ALIKE: Final = (
    "Make the ranks call the same collectives in the same order, with the same op (ReduceOp) and tensors of the same "
    "size and dtype: look for branches that differ between ranks."
)

_DIFFER: Final = {
    "bytes": "their sizes in bytes differ",
    "dtype": "the types of their elements differ",
    "bucket": "their buckets differ",
}
"""By the field in which they do."""

_EARLY: Final = (
    " Or it came there a pass early: look for fewer batches, or a branch that skips one (`continue`)."
)


def _look(view: RunView) -> Iterator[Finding]:
    for mismatch in view.mismatches:
        yield _of_buckets(mismatch)
    aborted, lines = _aborted(view), _lines(view)
    # A call that one rank left out shifts those that follow: what meets then is said with it.
    shifted = {one.operation.removeprefix("gloo:") for one in view.unequal_calls}
    shifted |= {one.operation.removeprefix("gloo:") for one in view.different_calls if one.field != "dtype"}
    reductions = [one for one in different_reductions(view.sidecars) if one.operation not in shifted]
    yield from map(_of_reductions, reductions)
    known = {one.operation for one in reductions}
    for mismatch in view.different_calls:
        if mismatch.operation.removeprefix("gloo:") not in known:
            yield _of_calls(mismatch, aborted, lines)
    if view.interruption is None and view.standstill is None:
        failed = bool(view.errors.total) or any(rank.ended_by for rank in view.ranks)
        for unequal in view.unequal_calls:
            # Where all went well, the recorder has rather missed a call.
            if failed or unequal.crossed:
                yield _of_counts(view, unequal, aborted, lines, failed=failed)


def _aborted(view: RunView) -> list[int]:
    """The ranks that Gloo ended because they received more than they expect.

    Such a rank did all right, as a rule: another one sent it what belongs elsewhere.
    """
    ends = {rank: seen.end for rank, seen in sorted(view.endings.items()) if seen.end is not None}
    return [rank for rank, end in ends.items() if _received_other(end)]


def _received_other(end: End) -> bool:
    return explain(f"{end.error}: {end.message}" if end.error else end.message).kind == "sizes_differ"


def _lines(view: RunView) -> dict[int, str]:
    """Where each rank's script was when it failed or was last seen since its newest record."""
    found = {
        rank: (seen.end.where if seen.end is not None else "") or seen.where
        for rank, seen in view.endings.items()
    }
    return {rank: where for rank, where in found.items() if where}


def _finding(
    message: str,
    confidence: Confidence,
    named: Sequence[int],
    step: int | None,
    change_mind: str = _MISSED,
    advice: str = _ALIKE,
    lines: Mapping[int, str] | None = None,
    called: bool = False,
    **evidence: float | str | None,
) -> Finding:
    """`named`: who went astray, as far as that is known; `lines`: where each rank was by then, or `called` it first."""
    # The line of the rank that is named, or of the only one whose line is known.
    lines = lines or {}
    known = [lines[rank] for rank in named if rank in lines] or list(lines.values())
    said = listed((f"rank {rank} at {where}" for rank, where in lines.items()), 4)
    first = said.replace(" at ", " called it first at " if called else " was at ", 1)
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=message + (f"; {'' if called else 'by then '}{first}" if said else "") + ".",
        confidence=confidence,
        rank=culprit(named),
        since_step=step,
        where=known[0] if len(known) == 1 else None,
        evidence={**evidence, "step": step, "lines": said or None},
        change_mind=change_mind,
        advice=advice,
    )


def _of_buckets(mismatch: Mismatch) -> Finding:
    other = mismatch.field == "bucket"
    return _finding(
        f"the ranks reduced different things: {_differ(mismatch, 'all-reduce')}. The sums are wrong",
        "medium" if other else "certain",
        odd_ones(mismatch.values),
        mismatch.step,
        "The modules were attached in another order on one rank, or its trace lost records."
        if other
        else "The traces belong to different runs.",
        "Build the same model, in the same order, with the same dtype and bucket_cap_mb on every rank.",
        all_reduces=mismatch.count,
        sequence=mismatch.sequence,
    )


def _of_calls(mismatch: Mismatch, aborted: Sequence[int], lines: Mapping[int, str]) -> Finding:
    what = clean(mismatch.operation)
    led_to = f"Gloo then aborted {ranks(aborted)}" if aborted else "The results are wrong"
    return _finding(
        f"the ranks called {what} with different things: {_differ(mismatch, 'call')}. {led_to}",
        # Gloo says the same: a rank received more than it expects.
        "certain" if aborted else "medium",
        odd_ones(mismatch.values),
        mismatch.step,
        lines=lines,
        operation=what,
        calls=mismatch.count,
        sequence=mismatch.sequence,
    )


def _of_reductions(different: DifferentReductions) -> Finding:
    """Calls of equal size that Gloo lets pass."""
    what = clean(different.operation)
    said = {rank: clean(kind.said) for rank, kind in different.kinds.items()}
    first = "" if different.call is None else f", first in call {different.call} in step {different.step}"
    return _finding(
        f"the ranks called {what} for different things of equal size: "
        f"{'the operation' if different.field == 'op' else 'the type of the elements'} differs{first} "
        f"({_values(said)}). Gloo does not compare them, and the results are wrong",
        "certain" if different.whole else "medium",
        odd_ones(said),
        different.step,
        "Threads of one rank made these calls in another order, or the rank with fewer of them was recorded from a "
        "later call on.",
        lines={rank: kind.where for rank, kind in different.kinds.items() if kind.where},
        called=True,
        operation=f"gloo:{what}",
        sequence=different.call,
        **{f"rank_{rank}": one for rank, one in list(said.items())[:8]},
    )


def _of_counts(
    view: RunView, unequal: UnequalCalls, aborted: Sequence[int], lines: Mapping[int, str], *, failed: bool
) -> Finding:
    """Some ranks called something that others did not."""
    what, calls = clean(unequal.operation), unequal.calls
    fewest, most = min(calls.values()), max(calls.values())
    # Of two ranks, neither has a majority; the one that did otherwise than in the steps before went astray.
    odd = odd_ones(calls) or list(unequal.strayed)
    high = [rank for rank, amount in calls.items() if amount == most]
    out = out_of_batches(view.sidecars, high) if unequal.early else None
    # One rank with fewer than all others left a call out; else those with most made too many, or came there early.
    fewer = out is None and bool(odd) and all(calls[rank] == fewest for rank in odd)
    led_to = (
        f"Gloo then aborted {ranks(aborted)}, which received what belongs to another call"
        if aborted
        else "From there on calls meet that do not belong together"
    )
    named, early = odd if fewer else high, unequal.early and not fewer
    why = (
        f", because {verb(high, 'it', 'they')} had no more batches: {out.said}"
        if out
        else ", after fewer all-reduces of gradients"
        if early
        else ""
    )
    where = f", first in step {unequal.step}" if unequal.step is not None else ""
    numbers = (fewest, most) if fewer else (most, fewest)
    return _finding(
        f"{ranks(named)} called {what} {count(most - fewest, 'time')} {'less' if fewer else 'more'} than "
        f"{ranks([rank for rank in calls if rank not in named])}{where} ({count(numbers[0], 'call')} against "
        f"{numbers[1]}){why}. {led_to}",
        "certain" if failed and unequal.crossed else "high" if failed else "medium",
        # Of two ranks that both called it in that step, either may be the one that went astray.
        named if odd or out or not unequal.shared else [],
        unequal.step,
        advice=view.advice.uneven()
        if out
        else "Every rank has to make the same calls. Where one rank alone evaluates, logs or saves, let it use "
        "ddp.module (a call of DDP itself broadcasts buffers), and no all_reduce, broadcast or barrier."
        + (_EARLY if early else ""),
        lines=lines,
        operation=what,
        most=most,
        fewest=fewest,
    )


def _differ(mismatch: Mismatch, noun: str) -> str:
    first = ", the first" if mismatch.count > 1 else ""
    return (
        f"{_DIFFER[mismatch.field]} in {count(mismatch.count, noun)}{first} in step {mismatch.step} "
        f"({_values(mismatch.values)})"
    )


def _values(values: Mapping[int, str]) -> str:
    return listed((f"rank {rank}: {value}" for rank, value in values.items()), 4)


CHECK = Check(("mismatched_all_reduce",), _look, rests_on="records")
