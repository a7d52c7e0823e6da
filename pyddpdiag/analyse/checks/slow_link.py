"""A link takes much longer for each byte than the others do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pyddpdiag.analyse.bounds import LARGE_SHARE, LEAST_MS, WINDOW
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.changed import changed_links
from pyddpdiag.analyse.links.culprit import named
from pyddpdiag.analyse.links.noise import MBIT, won
from pyddpdiag.analyse.links.other_traffic import OtherTraffic
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import times_of
from pyddpdiag.analyse.windows import stretches
from pyddpdiag.model import Finding, LinkStats
from pyddpdiag.model.words import milliseconds, number


def _look(view: RunView) -> Iterator[Finding]:
    faults, exposed = view.link_faults, view.exposure
    in_a_part = list(_in_a_part(view))
    if in_a_part or not exposed.is_found or not faults.slow:
        yield from in_a_part
        return
    worst = faults.slow[0]
    culprit = faults.culprit(faults.slow, receiver=False)
    other = _other_traffic(view, faults.slow)
    slowness, busy = faults.slowness(faults.slow), worst.busy_ms_per_mb or 0.0
    yield Finding(
        kind="slow_link",
        severity="warning",
        message=f"{named(culprit, faults.slow)} {culprit.verb('is', 'are')} slow: {milliseconds(busy)} for each MB, "
        f"{number(slowness)} times as long as the other links; waiting for communication holds up "
        f"{exposed.of_each_step}." + (f" {other.words}" if other else ""),
        confidence=won(max(faults.slower[link] for link in faults.slow), exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=exposed.cost_ms * (1 - 1 / slowness),
        evidence={
            "busy_ms_per_mb": busy,
            "times_the_others": slowness,
            "loss_fraction": worst.loss_fraction,
            "mbit_per_s": MBIT / busy if busy else None,
            "slow_links": len(faults.slow),
            "links": len(faults.carrying),
            "other_traffic_bytes": other.other if other else None,
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
        },
        change_mind="The receiving process is slow to read what has arrived: look at its processor."
        if culprit.is_host or culprit.rank is None
        else "One link does not show which side is slow: rank is the sender, peer the receiver.",
        advice=other.advice
        if other
        else "Look at the speed of its interfaces (Linux: ethtool), at other traffic on them, and at limits on "
        "traffic; pyddpdiag bench interfaces compares interfaces.",
    )


def _other_traffic(view: RunView, slow: Sequence[LinkStats]) -> OtherTraffic | None:
    """What other programs send or receive most over an interface of these links, if it is much."""
    ends = {(link.rank, link.interface, True) for link in slow} | {
        (link.peer, link.peer_interface, False) for link in slow
    }
    of_host = view.link_faults.hosts
    near = {(of_host.get(rank, rank), name, sends) for rank, name, sends in ends}
    return next(
        (
            each
            for each in view.other_traffic
            if (of_host.get(each.rank, each.rank), each.interface, each.sends) in near
        ),
        None,
    )


def _in_a_part(view: RunView) -> Iterator[Finding]:
    """Links that become slow while the run goes on, or are slow for a while."""
    exposed, faults, steps = view.exposure, view.link_faults, view.judged
    part = stretches(exposed.least - np.maximum(LEAST_MS, LARGE_SHARE * exposed.wall))
    if part is None or not steps.can_judge or faults.lossy or faults.delayed:
        return
    beside = np.delete(exposed.least, part.rows)
    # There must be enough to compare it with, which is otherwise.
    if len(beside) < WINDOW or median(exposed.least[part.rows]) <= median(beside):
        return
    changed = changed_links(faults.carrying, view.connections, view.step_ends, part, steps.step)
    if not changed:
        return
    worst, bad = changed[0], [each.link for each in changed]
    there_ms, usual_ms = worst.link.busy_ms_per_mb or 0.0, worst.usual_ms_per_mb
    culprit = faults.culprit(bad, receiver=False)
    since, until = part.between(steps.step)
    least = exposed.least[part.rows]
    lost = float(np.nansum(np.maximum(0.0, least - median(beside))))
    yield Finding(
        kind="slow_link",
        severity="warning",
        message=f"{named(culprit, bad)} {culprit.verb('is', 'are')} slow {part.words(steps.step)}: "
        f"{number(MBIT / there_ms)} Mbit/s while something is to be sent, {number(MBIT / usual_ms)} otherwise; "
        f"waiting for communication holds up {milliseconds(median(least))} of each step there, "
        f"{milliseconds(median(beside))} otherwise.",
        confidence="medium",
        rank=culprit.rank,
        peer=culprit.peer,
        since_step=since,
        until_step=until,
        cost_ms=lost / max(1, exposed.typical.steps),
        cost_s=lost / 1e3,
        evidence={
            "busy_ms_per_mb": there_ms,
            "usual_busy_ms_per_mb": usual_ms,
            "mbit_per_s": MBIT / there_ms,
            "usual_mbit_per_s": MBIT / usual_ms,
            "slow_links": len(bad),
            "links": len(faults.carrying),
            "until_step": until,
            **part.evidence(exposed.least, "exposed"),
            **times_of(view, steps.ranks[0], since, until),
        },
        change_mind="The receiving process is slow to take what has come: look at its processor.",
        advice="Look at what began then: other traffic on the link, a lower rate that it negotiated (Linux: ethtool), "
        "a limit on traffic.",
    )


# Where interfaces are joined in another order, some carry what is meant for two.
CHECK = Check(("slow_link",), _look, per_group=True, rests_on="waits")
