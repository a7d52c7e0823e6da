"""What is sent is lost on the way and sent again."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.culprit import named
from pyddpdiag.analyse.links.link_faults import lost
from pyddpdiag.analyse.links.noise import EVERYWHERE, won
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding


def _look(view: RunView) -> Iterator[Finding]:
    faults, exposed = view.link_faults, view.exposure
    if not exposed.is_found or not faults.lossy:
        return
    worst = faults.lossy[0]
    # A receiver that cannot keep up drops what has come; a sender waits.
    culprit = faults.culprit(faults.lossy, receiver=True)
    loss = worst.loss_fraction or 0.0
    if culprit.rank is None and loss < EVERYWHERE:
        return
    cost = min(exposed.cost_ms, faults.held_up_share(faults.lossy) * exposed.step_ms)
    yield Finding(
        kind="packet_loss",
        # A sound link loses nothing: what it costs is only estimated, and never known to be little.
        severity="warning",
        message=f"{named(culprit, faults.lossy)} {culprit.verb('loses', 'lose')} up to "
        f"{loss:.1%} of what is sent, and waiting for "
        f"communication holds up {exposed.of_each_step}.",
        confidence=won(lost(worst), exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=cost,
        evidence={
            "loss_fraction": loss,
            "segments": worst.segments,
            "retransmitted": worst.retransmitted,
            "dsack_dups": worst.dsack_dups,
            "lossy_links": len(faults.lossy),
            "links": len(faults.carrying),
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
        },
        change_mind="The losses came in one short period, not throughout the run."
        if culprit.is_host or culprit.rank is None
        else "One link does not show which end drops packets: rank is the receiver, peer the sender.",
        advice="Look at dropped packets and errors of the interfaces at both ends and of the switch between them "
        "(Linux: ip -s link, ethtool -S), at cable and duplex mode, and at limits on traffic.",
    )


CHECK = Check(("packet_loss",), _look, per_group=True, rests_on="waits")
