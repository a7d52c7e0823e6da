"""A round trip takes a large part of the time that a bucket needs."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.culprit import named
from pyddpdiag.analyse.links.noise import won
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, percent


def _look(view: RunView) -> Iterator[Finding]:
    faults, exposed, wire_ms = view.link_faults, view.exposure, view.link_faults.wire_ms
    if not exposed.is_found or not faults.delayed or not wire_ms:
        return
    worst = faults.delayed[0]
    trip = faults.trip_ms(worst)
    # Each round waits for one message, which takes half a round trip; a window that opens slowly makes it more.
    slowness = faults.slowness(faults.delayed)
    share = max(faults.rounds * trip / 2 / wire_ms, 1 - 1 / slowness if slowness > 1 else 0.0)
    cost = exposed.cost_ms * min(1.0, share)
    culprit = faults.culprit(faults.delayed, receiver=False)
    yield Finding(
        kind="high_latency",
        severity="warning" if exposed.is_worth(cost) else "note",
        message=f"{named(culprit, faults.delayed)} {culprit.verb('is', 'are')} far away: a round trip takes at least "
        f"{milliseconds(trip)}, {percent(trip / wire_ms)} of the {milliseconds(wire_ms)} of the largest bucket, "
        f"which waits for {faults.rounds} messages in a row.",
        # What the system measured by itself needs no comparison.
        confidence=won(faults.far.get(worst, inf), exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=cost,
        evidence={
            "min_rtt_ms": trip,
            "times_the_others": slowness or None,
            "wire_ms": wire_ms,
            "share_of_wire": trip / wire_ms,
            "messages_in_a_row": faults.rounds,
            "delayed_links": len(faults.delayed),
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
        },
        change_mind="The process at one end answers late: on a machine without a free core even the shortest round "
        "trip is longer.",
        advice="Put the ranks closer together, or synchronise less often (a larger batch, gradient accumulation); "
        "fewer and larger buckets (bucket_cap_mb) wait less often.",
    )


# Where interfaces are joined in another order, some carry what is meant for two, and their queues are long.
CHECK = Check(("high_latency",), _look, per_group=True, rests_on="waits")
