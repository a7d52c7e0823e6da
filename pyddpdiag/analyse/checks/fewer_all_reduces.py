"""A rank made fewer all-reduces than the others, or in other steps, though no record was lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyddpdiag.analyse.batches import out_of_batches
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.pairing import Skipped
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.raised import Raised
from pyddpdiag.model.rows import Gap
from pyddpdiag.model.words import at, count, listed
from pyddpdiag.output import clean

_ADVICE = (
    "Look for what skips a backward pass there: a branch, `continue`, or an exception that is caught around the step. "
    "All ranks must skip the same ones, and have as many batches."
)


def _look(view: RunView) -> Iterator[Finding]:
    skipped = {one.rank: one for one in view.skipped.ranks}
    whole = {
        rank.rank
        for rank in view.ranks
        if ((rank.closed and rank.ended != "exception") or rank.rank in skipped) and rank.is_whole
    }
    behind = [gap for gap in view.gaps if gap.after and gap.rank in whole]
    if view.standstill is not None or view.interruption is not None:
        # Who is behind now has been said, and where a run was interrupted some rank is; what is not known yet is
        # where it went astray.
        behind = [gap for gap in behind if gap.rank in skipped]
    if behind:
        yield _fewer(view, behind, skipped)
    elif skipped and view.skipped.aligned and not any(gap.after for gap in view.gaps):
        yield _crossed(view.skipped.ranks)


def _fewer(view: RunView, behind: list[Gap], skipped: Mapping[int, Skipped]) -> Finding:
    # The one that went astray first; where that is not known, the one that is furthest behind.
    never = 2**63
    worst = min(
        behind,
        key=lambda gap: (skipped[gap.rank].step if gap.rank in skipped else never, -gap.after, gap.rank),
    )
    known = skipped.get(worst.rank)
    uneven = None if known else out_of_batches(view.sidecars, [worst.rank])
    last = next(one.last_step for one in view.ranks if one.rank == worst.rank)
    since = known.step if known else last + 1 if uneven and last is not None else None
    raised = _raised(view, known) if known else None
    where = f": {_said(known)}{_by(raised)}. Since then it is out of step with them, and" if known else "."
    if uneven:
        where = f", because it had no more batches: {uneven.said}."
    return Finding(
        kind="fewer_all_reduces",
        severity="error",
        message=f"rank {worst.rank} made {count(worst.after, 'bucket all-reduce')} fewer in group {worst.group} than "
        f"the others, though no record of it was lost{where} {'r' if known else 'R'}esults may be silently wrong.",
        confidence="high",
        rank=worst.rank,
        since_step=since,
        evidence={
            "fewer": worst.after,
            "ranks_behind": len({gap.rank for gap in behind}),
            "step": since,
            "steps_with_fewer": known.times if known else None,
            "batches": uneven.batches[worst.rank] if uneven else None,
            "batches_most": max(uneven.batches.values()) if uneven else None,
            "raised": raised.error if raised else None,
        },
        where=raised.where or None if raised else None,
        change_mind="The ranks have different numbers of batches and train under DDP's Join.",
        advice=_ADVICE if known else view.advice.uneven(),
    )


def _raised(view: RunView, skipped: Skipped) -> Raised | None:
    """What its forward pass raised in that step."""
    raised = view.sidecars[skipped.rank].training.raised
    return next((one for one in raised if one.step == skipped.step), None)


def _by(raised: Raised | None) -> str:
    if raised is None:
        return ""
    return f", as its forward pass raised {clean(raised.error)}{at(clean(raised.where))}, which the script caught"


def _crossed(skipped: tuple[Skipped, ...]) -> Finding:
    first = skipped[0]
    ranks = [one.rank for one in skipped]
    others = f"; rank {listed(ranks[1:])} did so later" if len(ranks) > 1 else ""
    return Finding(
        kind="fewer_all_reduces",
        severity="error",
        message=f"rank {first.rank} skipped all-reduces that the others made: {_said(first)}{others}. From there on "
        "gradients of different steps were added up.",
        confidence="medium",
        rank=first.rank,
        since_step=first.step,
        evidence={
            "fewer": first.usual - first.buckets,
            "ranks_behind": len(skipped),
            "step": first.step,
            "steps_with_fewer": first.times,
        },
        change_mind="The ranks mark their steps differently (recorder.steps around other loops).",
        advice=_ADVICE,
    )


def _said(one: Skipped) -> str:
    has = f"{count(one.buckets, 'bucket')} and not {one.usual}" if one.buckets else "no bucket"
    more = f", the first of {one.times} such steps" if one.times > 1 else ""
    return f"in step {one.step} it has {has}{more}"


CHECK = Check(("fewer_all_reduces",), _look, rests_on="own times")
