"""The ranks put different things into one all-reduce, or into another collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyddpdiag.analyse.calls.reductions import DifferentReductions, different_reductions
from pyddpdiag.analyse.calls.unequal import UnequalCalls
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.majority import odd_ones
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.explain import explain
from pyddpdiag.model import Finding, Mismatch
from pyddpdiag.model.ending import End
from pyddpdiag.model.words import count, listed, ranks
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    for mismatch in view.mismatches:
        yield _of_buckets(mismatch)
    aborted, lines = mismatch_aborted(view), _lines(view)
    # A call that one rank left out shifts those that follow: what meets then is said with it.
    shifted = {one.operation.removeprefix("gloo:") for one in view.unequal_calls}
    shifted |= {one.operation.removeprefix("gloo:") for one in view.different_calls if one.field != "dtype"}
    reductions = [one for one in different_reductions(view.sidecars) if one.operation not in shifted]
    for different in reductions:
        yield _of_reductions(different)
    known = {one.operation for one in reductions}
    for mismatch in view.different_calls:
        if mismatch.operation.removeprefix("gloo:") not in known:
            yield _of_calls(mismatch, aborted, lines)
    if view.interruption is None and view.standstill is None:
        failed = bool(view.errors.total) or any(rank.ended_by for rank in view.ranks)
        for unequal in view.unequal_calls:
            # Where all went well, the recorder has rather missed a call.
            if not (failed or unequal.crossed):
                continue
            yield _of_counts(unequal, aborted, lines, failed=failed)


def mismatch_aborted(view: RunView) -> tuple[int, ...]:
    """The ranks that Gloo ended because they received more than they expect, where ranks did different things.

    Such a rank did all right, as a rule: another one sent it what belongs elsewhere.
    """
    if not (view.mismatches or view.different_calls or view.unequal_calls):
        return ()
    ended = [
        rank for rank, seen in view.endings.items() if seen.end is not None and _received_other(seen.end)
    ]
    return tuple(sorted(ended))


def _lines(view: RunView) -> dict[int, str]:
    """Where each rank's script was when it failed or was last seen since its newest record."""
    found = {}
    for rank, seen in view.endings.items():
        where = (seen.end.where if seen.end is not None else "") or seen.where
        if where:
            found[rank] = where
    return found


def _said(lines: Mapping[int, str]) -> str:
    return listed((f"rank {rank} at {where}" for rank, where in lines.items()), 4)


def _at(lines: Mapping[int, str]) -> str:
    """Where the ranks were by then."""
    return f"; by then {_said(lines).replace(' at ', ' was at ', 1)}" if lines else ""


def _where(lines: Mapping[int, str], named: Sequence[int]) -> str | None:
    """The line of the rank that is named, or of the only one whose line is known."""
    known = [lines[rank] for rank in named if rank in lines] or list(lines.values())
    return known[0] if len(known) == 1 else None


def _received_other(end: End) -> bool:
    return explain(f"{end.error}: {end.message}" if end.error else end.message).kind == "sizes_differ"


def _of_buckets(mismatch: Mismatch) -> Finding:
    odd = odd_ones(mismatch.values)
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"the ranks reduced different things: {mismatch.field} differs in "
        f"{count(mismatch.count, 'all-reduce')}, first in step {mismatch.step} ({_values(mismatch)}). The sums are "
        "wrong.",
        confidence="medium" if mismatch.field == "bucket" else "certain",
        rank=odd[0] if len(odd) == 1 else None,
        since_step=mismatch.step,
        evidence={
            "all_reduces": mismatch.count,
            "step": mismatch.step,
            "sequence": mismatch.sequence,
        },
        change_mind="The traces belong to different runs."
        if mismatch.field != "bucket"
        else "The modules were attached in another order on one rank, or its trace lost records.",
        advice="Build the same model, in the same order, with the same dtype and bucket_cap_mb on every rank.",
    )


def _of_calls(mismatch: Mismatch, aborted: Sequence[int], lines: Mapping[int, str]) -> Finding:
    odd = odd_ones(mismatch.values)
    what = clean(mismatch.operation)
    led_to = f"Gloo then aborted {ranks(aborted)}" if aborted else "The results are wrong"
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"the ranks called {what} with different things: {mismatch.field} differs in "
        f"{count(mismatch.count, 'call')}, first in call {mismatch.sequence} in step {mismatch.step} "
        f"({_values(mismatch)}). {led_to}{_at(lines)}.",
        # Gloo says the same: a rank received more than it expects.
        confidence="certain" if aborted else "medium",
        rank=odd[0] if len(odd) == 1 else None,
        since_step=mismatch.step,
        where=_where(lines, odd),
        evidence={
            "operation": what,
            "calls": mismatch.count,
            "step": mismatch.step,
            "sequence": mismatch.sequence,
            "lines": _said(lines) or None,
        },
        change_mind="The recorder missed a call on one rank, or the calls were in different process groups.",
        advice="Make the ranks call the same collectives in the same order with tensors of the same size and dtype: "
        "look for branches that differ between ranks.",
    )


def _of_reductions(different: DifferentReductions) -> Finding:
    """Calls of equal size that Gloo lets pass."""
    odd = odd_ones({rank: kind.said for rank, kind in different.kinds.items()})
    lines = {rank: kind.where for rank, kind in different.kinds.items() if kind.where}
    what = clean(different.operation)
    first = "" if different.call is None else f", first in call {different.call} in step {different.step}"
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"the ranks called {what} for different things of equal size: "
        + ("the operation" if different.field == "op" else "the type of the elements")
        + f" differs{first} ("
        + listed(
            (f"rank {rank}: {clean(kind.said)}" for rank, kind in different.kinds.items()),
            4,
        )
        + f"). Gloo does not compare them, and the results are wrong{_called_at(lines)}.",
        confidence="certain" if different.whole else "medium",
        rank=odd[0] if len(odd) == 1 else None,
        since_step=different.step,
        where=_where(lines, odd),
        evidence={
            "operation": f"gloo:{what}",
            "step": different.step,
            "sequence": different.call,
            **{f"rank_{rank}": clean(kind.said) for rank, kind in list(different.kinds.items())[:8]},
            "lines": _said(lines) or None,
        },
        change_mind="Threads of one rank made these calls in another order, or the rank with fewer of them was "
        "recorded from a later call on.",
        advice="Make the ranks call the same collectives in the same order, with the same op (ReduceOp) and tensors of "
        "the same dtype: look for branches that differ between ranks.",
    )


def _called_at(lines: Mapping[int, str]) -> str:
    return f"; {_said(lines).replace(' at ', ' called it first at ', 1)}" if lines else ""


def _of_counts(
    unequal: UnequalCalls, aborted: Sequence[int], lines: Mapping[int, str], *, failed: bool
) -> Finding:
    """Some ranks called something that others did not."""
    what, calls = clean(unequal.operation), unequal.calls
    fewest, most = min(calls.values()), max(calls.values())
    # Of two ranks, neither has a majority; the one that did otherwise than in the steps before went astray.
    odd = odd_ones(calls) or list(unequal.strayed)
    # One rank with fewer than all others left a call out; else those with most made too many.
    fewer = bool(odd) and all(calls[rank] == fewest for rank in odd)
    led_to = (
        f"Gloo then aborted {ranks(aborted)}, which received what belongs to another call"
        if aborted
        else "From there on calls meet that do not belong together"
    )
    named = odd if fewer else [rank for rank, amount in calls.items() if amount == most]
    others = [rank for rank in calls if rank not in named]
    where = f", first in step {unequal.step}" if unequal.step is not None else ""
    numbers = (fewest, most) if fewer else (most, fewest)
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"{ranks(named)} called {what} {count(most - fewest, 'time')} {'less' if fewer else 'more'} than "
        f"{ranks(others)}{where} ({count(numbers[0], 'call')} against {numbers[1]}). {led_to}{_at(lines)}.",
        confidence="certain" if failed and unequal.crossed else "high" if failed else "medium",
        # Of two ranks that both called it in that step, either may be the one that went astray.
        rank=named[0] if len(named) == 1 and (odd or not unequal.shared) else None,
        since_step=unequal.step,
        where=_where(lines, named),
        evidence={
            "operation": what,
            "most": most,
            "fewest": fewest,
            "step": unequal.step,
            "lines": _said(lines) or None,
        },
        change_mind="The recorder missed a call on one rank, or the calls were in different process groups.",
        advice="Every rank has to make the same calls. Where one rank alone evaluates, logs or saves, let it use "
        "ddp.module (a call of DDP itself broadcasts buffers), and no all_reduce, broadcast or barrier.",
    )


def _values(mismatch: Mismatch) -> str:
    return listed((f"rank {rank}: {value}" for rank, value in mismatch.values.items()), 4)


CHECK = Check(("mismatched_all_reduce",), _look, rests_on="records")
