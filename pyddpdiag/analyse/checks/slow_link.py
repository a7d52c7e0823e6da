"""A link takes much longer for each byte than the others do."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.link_faults import named
from pyddpdiag.analyse.thresholds import confidence
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, number


def _look(view: RunView) -> Iterator[Finding]:
    faults, exposed = view.link_faults, view.exposure
    if not exposed.is_found or not faults.slow:
        return
    worst = faults.slow[0]
    culprit = faults.culprit(faults.slow, receiver=False)
    slowness, busy = faults.slowness(faults.slow), worst.busy_ms_per_mb or 0.0
    yield Finding(
        kind="slow_link",
        severity="warning",
        message=f"{named(culprit, faults.slow)} {culprit.verb('is', 'are')} slow: {milliseconds(busy)} for each MB, "
        f"{number(slowness)} times as long as the other links; waiting for communication holds up "
        f"{exposed.of_each_step}.",
        confidence=confidence(exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=exposed.cost_ms * (1 - 1 / slowness),
        evidence={
            "busy_ms_per_mb": busy,
            "times_the_others": slowness,
            "loss_fraction": worst.loss_fraction,
            "slow_links": len(faults.slow),
            "links": len(faults.carrying),
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
        },
        change_mind="The receiving process is slow to read what has arrived: look at its processor."
        if culprit.is_host or culprit.rank is None
        else "One link does not show which side is slow: rank is the sender, peer the receiver.",
        advice="Look at the speed of its interfaces (Linux: ethtool), at other traffic on them, and at limits on "
        "traffic; pyddpdiag bench interfaces compares interfaces.",
    )


# Where interfaces are joined in another order, some carry what is meant for two.
CHECK = Check(
    {"slow_link": ("warning",)},
    _look,
    unless=("interface_order",),
    per_group=True,
    rests_on="waits",
    family="network",
    explains="exposed",
    role="fault",
)
