"""Every rank evaluates all of the data, where each could evaluate a part of it."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import WORTH_A_WORD, severity
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.account import START_UP
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import at, count, times


def _look(view: RunView) -> Iterator[Finding]:
    # The ranks' lives since their first step.
    run_s = max((one.wall_s - sum(one.part(part) for part in START_UP) for one in view.account), default=0.0)
    found = [one for one in view.full_evaluations if one.saved_s >= WORTH_A_WORD * run_s > 0.0]
    if not found:
        return
    longest, steps = found[0], view.judged.steps
    took_s, saved_s = sum(one.took_s for one in found), sum(one.saved_s for one in found)
    samples = (
        "the same samples" if longest.samples is None else f"the same {count(longest.samples, 'sample')}"
    )
    more = "" if len(found) == 1 else f", and {count(len(found) - 1, 'more loader')} likewise"
    yield Finding(
        kind="full_evaluation",
        severity=severity(saved_s, run_s),
        message=f"for {took_s:.1f} of {run_s:.1f} s every rank evaluates all of the data{at(longest.where)}, {samples} "
        f"({longest.sampler}), {times(longest.passes)}{more}: each of {len(longest.ranks)} ranks could take a part.",
        confidence="high",
        where=longest.where or None,
        # Evaluations are of the whole run, and there may be records of its end only.
        cost_ms=1e3 * saved_s / run_s * view.meetings.run_s / steps if steps else None,
        cost_s=saved_s,
        evidence={
            "took_s": took_s,
            "run_s": run_s,
            "share": took_s / run_s,
            "saved_s": saved_s,
            "passes": longest.passes,
            "samples": longest.samples,
            "ranks": len(longest.ranks),
            "passes_compared": longest.compared,
        },
        change_mind="The result needs all samples on one rank, and cannot be put together from those of parts.",
        advice="Give each rank its part: DataLoader(dataset, batch_size=..., sampler=DistributedSampler(dataset, "
        "shuffle=False)), and all-reduce the sums and counts at the end. The sampler repeats some samples where they "
        f"do not divide evenly. That would save up to {saved_s:.1f} s.",
    )


CHECK = Check(("full_evaluation",), _look, rests_on="records")
