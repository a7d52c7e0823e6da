"""Links that lose what is sent, take long for it, or carry nothing for moments: which they are, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from pyddpdiag.analyse.bounds import EVERYWHERE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.link_faults import MBIT, Culprit, lost, named, won
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import wall_clock
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import count, milliseconds, number, percent


def _loss(view: RunView) -> Iterator[Finding]:
    faults, exposed = view.link_faults, view.exposure
    if not exposed.is_found or not faults.lossy:
        return
    worst = faults.lossy[0]
    # A receiver that cannot keep up drops what has come; a sender waits.
    culprit = faults.culprit(faults.lossy, receiver=True)
    loss = worst.loss_fraction or 0.0
    if culprit.rank is None and loss < EVERYWHERE:
        return
    yield Finding(
        kind="packet_loss",
        # A sound link loses nothing: what it costs is only estimated, and never known to be little.
        severity="warning",
        message=f"{named(culprit, faults.lossy)} {culprit.verb('loses', 'lose')} up to {loss:.1%} of what is sent, and "
        f"waiting for communication holds up {exposed.of_step}.",
        confidence=won(lost(worst), exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        cost_ms=min(exposed.cost_ms, faults.held_up_share(faults.lossy) * exposed.step_ms),
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
        change_mind=_which_end(culprit, "The losses came in one short period, not throughout the run."),
        advice="Look at dropped packets and errors of the interfaces at both ends and of the switch between them "
        "(Linux: ip -s link, ethtool -S), at cable and duplex mode, and at limits on traffic.",
    )


def _which_end(culprit: Culprit, otherwise: str) -> str:
    if culprit.peer is None:
        return otherwise
    return "One link does not show which of its two ends is at fault: rank is the likelier one."


def _latency(view: RunView) -> Iterator[Finding]:
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


def _slow(view: RunView) -> Iterator[Finding]:
    faults, exposed = view.link_faults, view.exposure
    part = None if faults.slow or faults.lossy or faults.delayed else exposed.span
    if part is not None:
        # It may be slow there only, and sound by what was read in the whole run.
        faults, exposed = view.link_faults_in(max(part.spans, key=len)), exposed.within(part)
    if not exposed.is_found or not faults.slow:
        return
    worst = faults.slow[0]
    since, until = part.between(view.judged.step) if part else (None, None)
    when, there = (
        (f" {part.words(view.judged.step)}", len(part.rows) / len(view.exposure.least)) if part else ("", 1.0)
    )
    culprit = faults.culprit(faults.slow, receiver=False)
    # What other programs send or receive most over an interface of these links, if it is much.
    ends = {end for link in faults.slow for end in faults.ends_of(link)}
    other = next((one for one in view.other_traffic if faults.end_of(one) in ends), None)
    slowness, busy = faults.slowness(faults.slow), worst.busy_ms_per_mb or 0.0
    yield Finding(
        kind="slow_link",
        severity="warning",
        message=f"{named(culprit, faults.slow)} {culprit.verb('is', 'are')} slow{when}: {milliseconds(busy)} for each "
        f"MB, {number(slowness)} times as long as the other links; waiting for communication holds up "
        f"{exposed.of_step}." + (f" {other.words}" if other else ""),
        confidence=won(max(faults.slower[link] for link in faults.slow), exposed.typical.steps),
        rank=culprit.rank,
        peer=culprit.peer,
        since_step=since,
        until_step=until,
        cost_ms=there * exposed.cost_ms * (1 - 1 / slowness),
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
            **(part.evidence(view.exposure.least, "exposed") if part else {}),
        },
        change_mind=_which_end(
            culprit, "The receiver is slow to read what has arrived: look at its processor."
        ),
        advice=other.advice
        if other
        else "Look at the speed of its interfaces (Linux: ethtool), at other traffic on them, and at limits on "
        "traffic; pyddpdiag bench interfaces compares interfaces.",
    )


def _flapping(view: RunView) -> Iterator[Finding]:
    found, faults, lost_s = view.stalls, view.link_faults, view.stalled_s
    if found is None or not lost_s:
        return
    culprit = faults.culprit(found.links, receiver=False)
    begun = found.begin_ns + int(found.spans[0][0] * 1e9)
    first, every = wall_clock(view, found.links[0].rank, begun), found.every_s
    rhythm = f", about every {every:.1f} s" if every else ""
    yield Finding(
        kind="flapping_link",
        severity="warning",
        message=f"{named(culprit, found.links, link=True)} {culprit.verb('stands', 'stand')} still for moments: "
        f"{count(len(found.spans), 'time')} in {found.seconds:.0f} s{rhythm}"
        f"{f', first at {first:%H:%M:%S} UTC' if first else ''}, up to {found.longest_s:.1f} s, nothing that was sent "
        f"arrived; {percent(lost_s / found.seconds)} of the time goes by that way.",
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
            "exposed_ms": view.exposure.mean_ms,
        },
        change_mind="The interface's log shows no change of its carrier, and the machine behind it was suspended or "
        "out of memory at these moments.",
        advice="Look at the link's carrier changes and errors (Linux: ip -s link, ethtool -S, dmesg), at its cable, "
        "port and transceiver, at power saving, and at another machine with the same address.",
    )


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="waits")
    for kind, look in (
        ("flapping_link", _flapping),
        ("packet_loss", _loss),
        ("high_latency", _latency),
        ("slow_link", _slow),
    )
)
