"""The ranks of one host run more threads than it has cores, and wait for each other's."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.thresholds import confidence
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, shell_on, write
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, milliseconds
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    for host in view.crowding:
        worst = max(host.waits.by_rank.values())
        most = "" if host.culprit is None else f", most of them of rank {host.culprit}"
        threads = str(max(1, host.cores // len(host.ranks)))
        fewer = SetVariable("OMP_NUM_THREADS", threads)
        yield Finding(
            kind="oversubscribed_threads",
            severity="warning",
            message=f"{count(len(host.ranks), 'rank')} on host {clean(host.host)} run {host.threads} threads on "
            f"{count(host.cores, 'core')}{most}: a step waits up to {milliseconds(worst)} for a core.",
            # A few threads more than cores may be right: they wait, but together they may still be faster.
            confidence=confidence(steps.steps) if host.is_sure else "low",
            rank=host.culprit,
            cost_ms=host.waits.cost_ms,
            evidence={
                "threads": host.threads,
                "cores": host.cores,
                "busy_cores": host.busy_cores,
                "core_wait_ms": worst,
                "step_ms": steps.wall_ms,
                "steps": steps.steps,
            },
            change_mind="The step takes as long with fewer threads.",
            advice=write(fewer, shell_on(view.sidecars[host.ranks[0]].platform))
            + (" and start fewer ranks on this host." if len(host.ranks) > host.cores else "")
            + view.advice.line("--threads", threads),
        )


CHECK = Check(
    {"oversubscribed_threads": ("warning",)},
    _look,
    per_group=True,
    rests_on="own times",
    family="ranks",
    explains="late",
)
