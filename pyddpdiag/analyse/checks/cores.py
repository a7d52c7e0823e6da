"""Ranks wait for processor cores: those of other programs, of each other's threads, or within a container's limit.

A rank that is late for this reason is reported as `late_rank` with the cause `core`, and not here: it is one cause with
one culprit. `core_contention` is of the ranks that wait without being later than the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, MOST, confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.core_waits import NOBODY, CoreWaits, core_waits
from pyddpdiag.analyse.crowding import Crowding
from pyddpdiag.analyse.settings import by_host, host_cores, throttled_share, workers_of
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, Shell, shell_on, write
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, milliseconds, percent, ranks, those, verb
from pyddpdiag.output import clean


def _contention(view: RunView) -> Iterator[Finding]:
    """Other programs, or each other, hold the cores."""
    steps = view.judged
    found = core_waits(steps, view.usage, steps.ranks, [late.rank for late in view.late_ranks])
    waiting, cost = found.by_rank, found.cost_ms
    if not waiting:
        return
    worst = max(waiting.values())
    who = f"{those(tuple(waiting), len(steps.ranks))} {verb(tuple(waiting), 'waits', 'wait')}"
    at = [steps.place_of[rank] for rank in waiting]
    foreign = float(np.nansum(view.foreign_waits[:, at]) / np.nansum(view.usage.run_delay[:, at]))
    taken, mind, advice = _who_takes_them(view, tuple(waiting), foreign)
    yield Finding(
        kind="core_contention",
        severity="warning",
        message=f"{who} for a processor core: up to {milliseconds(worst)} of a step of "
        f"{milliseconds(steps.wall_ms)}, and {percent(cost / steps.wall_ms)} of a typical step is lost to it{taken}.",
        # A measured fact, and yet of the machine: whether it belongs to the job is not known.
        confidence="low",
        rank=next(iter(waiting)) if len(waiting) == 1 else None,
        cost_ms=cost,
        evidence={
            "core_wait_ms": worst,
            "by_other_programs_at_most": foreign,
            "ranks": len(waiting),
            "step_ms": steps.wall_ms,
            "steps": steps.steps,
        },
        change_mind=f"The step takes as long {mind}.",
        advice=advice,
    )


def _who_takes_them(view: RunView, waiting: Sequence[int], foreign: float) -> tuple[str, str, str]:
    """Who takes the cores, as far as that is known; the change that would disprove it; what to do.

    `foreign`: the part of the waits that other programs may have caused.
    """
    several = len(waiting) > 1
    hosts = [
        (len(members), host_cores(view.sidecars, members), workers_of(view.sidecars, members))
        for members in by_host(view.sidecars, waiting).values()
    ]
    if foreign < MOST:
        few = any(members > cores for members, cores, _ in hosts)
        by = "there are fewer cores than ranks" if few else "other threads of the ranks take the cores"
        fewer = "Start fewer ranks on the machine, or give it" if several else "Give the machine"
        return f"; {by}", "with more cores", f"{fewer} more cores."
    if workers := sum(workers for members, cores, workers in hosts if members + workers > cores):
        return (
            f"; the loaders' {count(workers, 'worker')} {'takes' if workers == 1 else 'take'} cores, too",
            "with fewer workers",
            f"Give the loaders fewer workers ({view.advice.workers('...')}), their samples less to compute, or the "
            "machine more cores.",
        )
    return (
        "",
        "without other load",
        "Other programs, or more busy threads than cores, take the cores: look at the machine's load (top), "
        f"{'start fewer ranks on it, ' if several else ''}or set OMP_NUM_THREADS to the cores per rank.",
    )


def _quota(view: RunView) -> Iterator[Finding]:
    """A container's limit holds ranks back, or leaves them fewer cores than there are ranks."""
    steps = view.judged
    for host, members in by_host(view.sidecars, steps.ranks).items():
        limited = [rank for rank in members if throttled_share(view.sidecars[rank]) >= HEALTHY_SHARE]
        masked = not limited and bool(host) and _is_masked(view, members)
        # On most hosts there is nothing to look at, and looking takes time.
        waits = core_waits(steps, view.usage, members, known=bool(limited)) if limited or masked else NOBODY
        limited = [rank for rank in limited if rank in waits.by_rank]
        if limited:
            yield _throttled(view, limited, members, waits)
        elif masked and waits:
            yield _masked(view, host, members, waits.cost_ms)


def _is_masked(view: RunView, members: list[int]) -> bool:
    """Whether these ranks, without a limit, may use fewer cores than they are, though the machine has more."""
    cores = host_cores(view.sidecars, members)
    return 0 < cores < len(members) and all(
        not view.sidecars[rank].quota and view.sidecars[rank].machine_cores > cores for rank in members
    )


def _throttled(view: RunView, limited: list[int], members: list[int], waits: CoreWaits) -> Finding:
    steps, quotas = view.judged, [view.sidecars[rank].quota for rank in limited]
    cores = min(quota.get("milli_cores", 0) for quota in quotas) / 1000
    share = max(throttled_share(view.sidecars[rank]) for rank in limited)
    delay = max(waits.by_rank[rank] for rank in limited)
    return Finding(
        kind="cpu_quota",
        severity="warning",
        message=f"{ranks(limited)} {verb(limited, 'is', 'are')} held back by a limit of {cores:g} "
        f"{'core' if cores == 1 else 'cores'} (a container's, cpu.max): in {percent(share)} of its periods, and a step "
        f"waits {milliseconds(delay)} of {milliseconds(steps.wall_ms)} for a core on average.",
        confidence=confidence(steps.steps),
        rank=limited[0] if len(limited) == 1 and len(steps.ranks) > 1 else None,
        cost_ms=waits.cost_ms,
        evidence={
            "quota_cores": cores,
            "throttled_share_of_periods": share,
            "throttled_s": max(quota.get("throttled_us", 0) for quota in quotas) / 1e6,
            "core_wait_ms": delay,
            "step_ms": steps.wall_ms,
            "steps": steps.steps,
        },
        change_mind="The step takes as long without the limit.",
        advice="Raise the container's limit (docker run --cpus, resources.limits.cpu in Kubernetes) to a core for each "
        f"thread that computes, or run fewer threads: OMP_NUM_THREADS={max(1, int(cores) // max(1, len(members)))}.",
    )


def _masked(view: RunView, host: str, members: list[int], cost: float) -> Finding:
    steps, cores = view.judged, host_cores(view.sidecars, members)
    worst = max(median(view.usage.run_delay[:, steps.place_of[rank]]) for rank in members)
    return Finding(
        kind="cpu_quota",
        severity="warning",
        message=f"{count(len(members), 'rank')} on host {clean(host)} may run on {count(cores, 'core')} only, of "
        f"{view.sidecars[members[0]].machine_cores} that it has: a step waits up to {milliseconds(worst)} for a core.",
        confidence="medium",
        cost_ms=cost,
        evidence={
            "cores": cores,
            "machine_cores": view.sidecars[members[0]].machine_cores,
            "ranks": len(members),
            "core_wait_ms": worst,
            "step_ms": steps.wall_ms,
            "steps": steps.steps,
        },
        change_mind="The step takes as long with a core for each rank.",
        advice="Give the ranks more cores: taskset, a container's cpuset (docker run --cpuset-cpus), or the number of "
        "cores that the job asks its scheduler for (sbatch --cpus-per-task); or start fewer ranks.",
    )


def _threads(view: RunView) -> Iterator[Finding]:
    """The ranks of one host run more threads than it has cores, and wait for each other's, or for those of one rank."""
    steps = view.judged
    for host in view.crowding:
        worst = max(host.waits.by_rank.values())
        fair = max(1, host.cores // len(host.ranks))
        burns = host.burnt_ms is not None
        yield Finding(
            kind="oversubscribed_threads",
            severity="warning",
            message=_burning(host) if burns else _crowded(host, worst),
            # A few threads more than cores may be right: they wait, but together they may still be faster.
            confidence=confidence(steps.steps) if host.is_sure else "medium" if burns else "low",
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
            advice=_fewer(host, fair, shell_on(view.sidecars[host.ranks[0]].platform))
            + view.advice.line("--threads", str(fair)),
        )


def _crowded(host: Crowding, worst: float) -> str:
    most = "" if host.culprit is None else f", most of them of rank {host.culprit}"
    return (
        f"{count(len(host.ranks), 'rank')} on host {clean(host.host)} run {host.threads} threads on "
        f"{count(host.cores, 'core')}{most}: a step waits up to {milliseconds(worst)} for a core."
    )


def _burning(host: Crowding) -> str:
    """One rank takes the cores of the others."""
    waits = dict(host.waits.by_rank)
    own = waits.pop(host.culprit, None) if host.culprit is not None else None
    least = "at least " if host.own_threads <= 1 else ""
    return (
        f"rank {host.culprit} runs {least}{count(max(2, host.own_threads), 'thread')} on "
        f"{count(host.cores, 'core')} of host {clean(host.host)} and takes them from {ranks(tuple(waits))}: the "
        f"threads beside its main one use {milliseconds(host.burnt_ms or 0.0)} of processor time in a step, and "
        f"{ranks(tuple(waits))} {verb(tuple(waits), 'waits', 'wait')} up to {milliseconds(max(waits.values()))} for a "
        "core" + (f", and rank {host.culprit} itself {milliseconds(own)}." if own is not None else ".")
    )


def _fewer(host: Crowding, fair: int, shell: Shell) -> str:
    """What to do; `fair`: as many threads for each rank as there are cores for it."""
    advice = write(SetVariable("OMP_NUM_THREADS", str(fair)), shell)
    if host.burnt_ms is not None and host.own_threads <= fair:
        advice = (
            f"Find what runs threads on rank {host.culprit} (py-spy dump shows them): NumPy, OpenCV and other "
            f"libraries have pools of their own, for which there is {advice} or cv2.setNumThreads({fair})."
        )
    elif host.culprit is not None:
        advice = (
            f"On rank {host.culprit}: {advice}, or torch.set_num_threads({fair}) where its script sets more."
        )
    return advice + (" and start fewer ranks on this host." if len(host.ranks) > host.cores else "")


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="own times")
    for kind, look in (
        ("cpu_quota", _quota),
        ("oversubscribed_threads", _threads),
        ("core_contention", _contention),
    )
)
