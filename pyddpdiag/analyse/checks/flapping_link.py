"""A link is down for moments, again and again: nothing goes over it, and all ranks wait."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.link_faults import named
from pyddpdiag.analyse.thresholds import HEALTHY_SHARE
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, percent


def _look(view: RunView) -> Iterator[Finding]:
    found, faults, exposed = view.stalls, view.link_faults, view.exposure
    if found is None or not view.judged.can_judge or found.stalled_s < HEALTHY_SHARE * found.seconds:
        return
    culprit = faults.culprit(found.links, receiver=False)
    # While it is down, the ranks also compute and wait for other reasons.
    lost_s = min(found.stalled_s, max(0.0, exposed.mean_ms) * view.judged.steps / 1e3)
    every = found.every_s
    rhythm = f", about every {every:.1f} s" if every else ""
    yield Finding(
        kind="flapping_link",
        severity="warning",
        message=f"{named(culprit, found.links)} {culprit.verb('stands', 'stand')} still for moments: "
        f"{count(len(found.spans), 'time')} in {found.seconds:.0f} s{rhythm}, up to {found.longest_s:.1f} s, nothing "
        f"that was sent arrived; {percent(found.stalled_s / found.seconds)} of the time goes by that way.",
        confidence="high" if culprit.rank is not None and every else "medium",
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=1e3 * lost_s / view.judged.steps,
        cost_s=lost_s,
        evidence={
            "times": len(found.spans),
            "every_s": every,
            "stalled_s": found.stalled_s,
            "longest_s": found.longest_s,
            "seconds": found.seconds,
            "sent_again": found.sent_again,
            "stalled_links": len(found.links),
            "links": len(faults.carrying),
            "exposed_ms": exposed.mean_ms,
        },
        change_mind="The interface's log shows no change of its carrier, and the machine behind it was suspended or "
        "out of memory at these moments.",
        advice="Look at the link's carrier changes and errors (Linux: ip -s link, ethtool -S, dmesg), at its cable, "
        "port and transceiver, at power saving, and at another machine with the same address.",
    )


CHECK = Check(
    {"flapping_link": ("warning",)},
    _look,
    unless=("interface_order",),
    per_group=True,
    rests_on="waits",
    family="network",
    explains="exposed",
    role="fault",
)
