"""The ranks put different things into one all-reduce, or into another collective."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.calls.unequal import UnequalCalls
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.majority import odd_ones
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding, Mismatch
from pyddpdiag.model.words import count, listed, ranks
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    for mismatch in view.mismatches:
        yield _of_buckets(mismatch)
    for mismatch in view.different_calls:
        yield _of_calls(mismatch)
    if view.interruption is None and view.standstill is None:
        failed = bool(view.errors.total) or any(rank.ended_by for rank in view.ranks)
        for unequal in view.unequal_calls:
            # Where all went well, the recorder has rather missed a call.
            if not (failed or unequal.crossed):
                continue
            yield _of_counts(unequal, failed=failed)


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


def _of_calls(mismatch: Mismatch) -> Finding:
    odd = odd_ones(mismatch.values)
    what = clean(mismatch.operation)
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"the ranks called {what} with different things: {mismatch.field} differs in "
        f"{count(mismatch.count, 'call')}, first in call {mismatch.sequence} in step {mismatch.step} "
        f"({_values(mismatch)}). The results are wrong.",
        confidence="medium",
        rank=odd[0] if len(odd) == 1 else None,
        since_step=mismatch.step,
        evidence={
            "operation": what,
            "calls": mismatch.count,
            "step": mismatch.step,
            "sequence": mismatch.sequence,
        },
        change_mind="The recorder missed a call on one rank, or the calls were in different process groups.",
        advice="Make the ranks call the same collectives in the same order with tensors of the same size and dtype: "
        "look for branches that differ between ranks.",
    )


def _of_counts(unequal: UnequalCalls, *, failed: bool) -> Finding:
    """Some ranks called something that others did not."""
    what, calls = clean(unequal.operation), unequal.calls
    fewest, most = min(calls.values()), max(calls.values())
    odd = odd_ones(calls)
    # One rank with fewer than all others left a call out; else those with most made too many.
    fewer = bool(odd) and all(calls[rank] == fewest for rank in odd)
    named = odd if fewer else [rank for rank, amount in calls.items() if amount == most]
    others = [rank for rank in calls if rank not in named]
    where = f", first in step {unequal.step}" if unequal.step is not None else ""
    numbers = (fewest, most) if fewer else (most, fewest)
    return Finding(
        kind="mismatched_all_reduce",
        severity="error",
        message=f"{ranks(named)} called {what} {count(most - fewest, 'time')} {'less' if fewer else 'more'} than "
        f"{ranks(others)}{where} ({count(numbers[0], 'call')} against {numbers[1]}). From there on, calls are "
        f"matched that do not belong together.",
        confidence="certain" if failed and unequal.crossed else "high" if failed else "medium",
        rank=named[0] if len(named) == 1 else None,
        since_step=unequal.step,
        evidence={"operation": what, "most": most, "fewest": fewest, "step": unequal.step},
        change_mind="The recorder missed a call on one rank, or the calls were in different process groups.",
        advice="Every rank has to make the same calls. Where one rank alone evaluates, logs or saves, let it use "
        "ddp.module (a call of DDP itself broadcasts buffers), and no all_reduce, broadcast or barrier.",
    )


def _values(mismatch: Mismatch) -> str:
    return listed((f"rank {rank}: {value}" for rank, value in mismatch.values.items()), 4)


CHECK = Check(
    {"mismatched_all_reduce": ("error",)}, _look, rests_on="records", family="failures", role="differs"
)
