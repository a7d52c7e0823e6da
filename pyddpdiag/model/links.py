"""What the connections between two ranks carried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinkStats:
    """What rank `rank` sent to rank `peer` over one pair of interfaces, while its connections were read.

    In a ring, Gloo sends gradients from each rank to the one before it. None: the system does not tell, or nothing was
    measured.

    Attributes:
        interface: of the sender; "" if it is not known.
        peer_interface: of the receiver.
        local: the sender's IP address.
        remote: the receiver's.
        loopback: both ends have the same address, so what is sent leaves no machine.
        connections: how many there are.
        seconds: how long they were read.
        bytes: that the peer has confirmed; where the system does not count those, that were sent.
        busy_ms_per_mb: time in which something was to be sent or not yet confirmed, for each 10^6 bytes.
        loss_spread: in which part of the half seconds with traffic segments were sent again; None: too few were.
        loss_scattered: whether segments were sent again at several of those, or at most; False: at once, or never.
        min_rtt_ms: the least round trip, as the system keeps it: perhaps of minutes ago.
        floor_rtt_ms: the least smoothed round trip while the link was read.
        low_rtt_ms: that which a twentieth of them stays below.
        usual_rtt_ms: the median one.
        segments: with data, sent.
        retransmitted: segments sent again.
        dsack_dups: of those, how many had arrived all the same.
        loss_fraction: the rest of those, of all segments.
        unconfirmed: segments that were on their way when the run failed, of which none had been confirmed for long.
        loss_rtt_share: the round trip when segments were sent again, over the usual one; None: too few losses.
    """

    rank: int
    peer: int
    interface: str
    peer_interface: str
    local: str
    remote: str
    loopback: bool
    connections: int
    seconds: float
    bytes: int | None
    busy_ms_per_mb: float | None
    min_rtt_ms: float | None
    segments: int | None
    retransmitted: int | None
    dsack_dups: int | None
    loss_fraction: float | None
    loss_rtt_share: float | None = None
    unconfirmed: int = 0
    loss_spread: float | None = None
    loss_scattered: bool | None = None
    floor_rtt_ms: float | None = None
    low_rtt_ms: float | None = None
    usual_rtt_ms: float | None = None
