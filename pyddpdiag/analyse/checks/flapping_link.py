"""A link is down for moments, again and again: nothing goes over it, and all ranks wait."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.culprit import named
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import wall_clock
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, percent


def _look(view: RunView) -> Iterator[Finding]:
    found, faults, exposed, lost_s = view.stalls, view.link_faults, view.exposure, view.stalled_s
    if found is None or not lost_s:
        return
    culprit = faults.culprit(found.links, receiver=False)
    who = f"the link of {named(culprit, found.links)}" if culprit.is_host else named(culprit, found.links)
    begun = found.begin_ns + int(found.spans[0][0] * 1e9)
    first = wall_clock(view, found.links[0].rank, begun)
    every = found.every_s
    rhythm = f", about every {every:.1f} s" if every else ""
    yield Finding(
        kind="flapping_link",
        severity="warning",
        message=f"{who} {culprit.verb('stands', 'stand')} still for moments: {count(len(found.spans), 'time')} in "
        f"{found.seconds:.0f} s{rhythm}{f', first at {first:%H:%M:%S} UTC' if first else ''}, up to "
        f"{found.longest_s:.1f} s, nothing that was sent arrived; {percent(lost_s / found.seconds)} of the time goes "
        "by that way.",
        confidence="high" if culprit.rank is not None and every else "medium",
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=1e3 * lost_s / view.judged.steps,
        cost_s=lost_s,
        evidence={
            "times": len(found.spans),
            "first_time": first.isoformat() if first else None,
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


CHECK = Check(("flapping_link",), _look, per_group=True, rests_on="waits")
