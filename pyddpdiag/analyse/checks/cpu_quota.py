"""A container's limit holds ranks back, or leaves them fewer cores than there are ranks."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.core_waits import NOBODY, CoreWaits, core_waits
from pyddpdiag.analyse.settings import by_host, host_cores, throttled_share
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, milliseconds, percent, ranks, verb
from pyddpdiag.output import clean


def _look(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    if not steps.can_judge:
        return
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


CHECK = Check(("cpu_quota",), _look, per_group=True, rests_on="own times")
