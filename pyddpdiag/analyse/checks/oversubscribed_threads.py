"""The ranks of one host run more threads than it has cores, and wait for each other's, or for those of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.crowding import Crowding
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, Shell, shell_on, write
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, milliseconds, ranks, verb
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    for host in view.crowding:
        worst = max(host.waits.by_rank.values())
        yield Finding(
            kind="oversubscribed_threads",
            severity="warning",
            message=_burning(host) if host.burnt_ms is not None else _crowded(host, worst),
            # A few threads more than cores may be right: they wait, but together they may still be faster.
            confidence=confidence(steps.steps)
            if host.is_sure
            else "low"
            if host.burnt_ms is None
            else "medium",
            rank=host.culprit,
            cost_ms=host.waits.cost_ms,
            evidence={
                "threads": host.threads,
                "threads_of_rank": host.own_threads or None,
                "cores": host.cores,
                "busy_cores": host.busy_cores,
                "other_threads_cpu_ms": host.burnt_ms,
                "core_wait_ms": worst,
                "step_ms": steps.wall_ms,
                "steps": steps.steps,
            },
            change_mind="The step takes as long with fewer threads.",
            advice=_advice(host, shell_on(view.sidecars[host.ranks[0]].platform))
            + view.advice.line("--threads", str(_fair(host))),
        )


def _crowded(host: Crowding, worst: float) -> str:
    most = "" if host.culprit is None else f", most of them of rank {host.culprit}"
    return (
        f"{count(len(host.ranks), 'rank')} on host {clean(host.host)} run {host.threads} threads on "
        f"{count(host.cores, 'core')}{most}: a step waits up to {milliseconds(worst)} for a core."
    )


def _burning(host: Crowding) -> str:
    """One rank takes the cores of the others."""
    waiting = {rank: host.waits.by_rank[rank] for rank in host.victims if rank in host.waits.by_rank}
    least = "at least " if host.own_threads <= 1 else ""
    own = host.waits.by_rank.get(host.culprit) if host.culprit is not None else None
    return (
        f"rank {host.culprit} runs {least}{count(max(2, host.own_threads), 'thread')} on "
        f"{count(host.cores, 'core')} of host {clean(host.host)} and takes them from {ranks(tuple(waiting))}: the "
        f"threads beside its main one use {milliseconds(host.burnt_ms or 0.0)} of processor time in a step, and "
        f"{ranks(tuple(waiting))} {verb(tuple(waiting), 'waits', 'wait')} up to "
        f"{milliseconds(max(waiting.values()))} for a core"
        + (f", and rank {host.culprit} itself {milliseconds(own)}." if own is not None else ".")
    )


def _fair(host: Crowding) -> int:
    """As many threads for each rank as there are cores for it."""
    return max(1, host.cores // len(host.ranks))


def _advice(host: Crowding, shell: Shell) -> str:
    fewer = _fair(host)
    advice = write(SetVariable("OMP_NUM_THREADS", str(fewer)), shell)
    if host.burnt_ms is not None and host.own_threads <= fewer:
        advice = (
            f"Find what runs threads on rank {host.culprit} (py-spy dump shows them): NumPy, OpenCV and other "
            f"libraries have pools of their own, for which there is {advice} or cv2.setNumThreads({fewer})."
        )
    elif host.culprit is not None:
        advice = (
            f"On rank {host.culprit}: {advice}, or torch.set_num_threads({fewer}) where its script sets more."
        )
    return advice + (" and start fewer ranks on this host." if len(host.ranks) > host.cores else "")


CHECK = Check(("oversubscribed_threads",), _look, per_group=True, rests_on="own times")
