"""By how much sound links differ; which links lose, delay or hold up what they carry, and which host they share.

Three explanations of long transfers compete for each link: its line loses, its way is long, or its rate is low. Links
are compared with each other and with the time that a bucket takes, never with an absolute speed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import (
    EVER,
    EVIDENCE,
    FULL,
    HEALTHY_SHARE,
    LATENCY_PART,
    LEAST_BYTES,
    LOST,
    MATTERS_SHARE,
    MOST,
    RATE,
    SEVERAL,
    SLOW_START,
    TRIP,
    WAY,
    confidence,
)
from pyddpdiag.analyse.links.other_traffic import OtherTraffic
from pyddpdiag.model.findings import Confidence
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.sidecar import Sidecar

MBIT: Final = 8e3
"""1 MB in 1 ms, in Mbit/s."""


def slower(busy: float, trip: float | None) -> float:
    """The evidence that a link's rate is low.

    One cause makes a link busy for longer and its queue longer, so both count in the same direction. Queues have many
    reasons, so that the round trip's part is bounded: it proves nothing by itself.

    Args:
        busy: busy time for each byte, in standard deviations above that of other links.
        trip: the usual round trip, likewise; None: not known.
    """
    along = busy if trip is None else (busy + min(trip, sqrt(2 * EVIDENCE))) / sqrt(2)
    return along * along / 2 if along > 0 else 0.0


def farther(trip: float) -> float:
    """The evidence of one deviation: the logarithm of its likelihood over that of a sound link."""
    return trip * trip / 2 if trip > 0 else 0.0


def won(found: float, steps: int) -> Confidence:
    """The confidence of a finding with so much evidence over so many steps: high where it is twice what it must be."""
    return confidence(steps) if found >= 2 * EVIDENCE else "medium"


def deviation(value: float, usual: float, spread: float) -> float:
    """By how many standard deviations it is larger; 0: one of them is not known."""
    return log(value / usual) / spread if value > 0 and usual > 0 else 0.0


End = tuple[int, str, bool]
"""A host, an interface of it, and whether it sends there."""


@dataclass(frozen=True)
class Culprit:
    """Where bad links meet: a host, named by a rank on it; or the ends of one link; or nowhere (both None)."""

    rank: int | None
    peer: int | None
    ranks: tuple[int, ...] = ()

    def verb(self, one: str, several: str) -> str:
        """What it does: `several` is said of links that have nothing in common."""
        return several if self.rank is None else one


def named(culprit: Culprit, bad: Sequence[LinkStats], *, link: bool = False) -> str:
    """Where the bad links are, in words; `link`: it is a host's link that does something, and not the host."""
    if culprit.rank is None:
        return f"{len(bad)} links between hosts"
    if culprit.peer is None:
        return f"{'the link of ' * link}the host of rank {', '.join(map(str, culprit.ranks))}"
    worst = bad[0]
    both = any((each.peer, each.rank) == (worst.rank, worst.peer) for each in bad)
    over = f" over {worst.interface}" if worst.interface else ""
    ends = ("between", "and") if both else ("from", "to")
    return f"the link {ends[0]} rank {worst.rank} {ends[1]} rank {worst.peer}{over}"


class LinkFaults:
    """The faults of a run's links.

    Attributes:
        links: all links between ranks.
        carrying: those that carry the gradients and leave a machine.
    """

    def __init__(
        self,
        links: Sequence[LinkStats],
        buckets: Sequence[BucketStats],
        sidecars: Mapping[int, Sidecar],
        other: Sequence[OtherTraffic] = (),
    ) -> None:
        """Look at links beside the buckets that went over them, and beside what `other` programs send."""
        self.links = tuple(links)
        most = max((link.bytes or 0 for link in links), default=0)
        threshold = max(LEAST_BYTES, MATTERS_SHARE * most)
        self.carrying = tuple(link for link in links if (link.bytes or 0) >= threshold and not link.loopback)
        self._buckets = buckets
        self._sidecars = sidecars
        # What fills an interface carries at least half of what the ranks do, which send for a part of the time only.
        self._filled = {self.end_of(each)[:2] for each in other if 2 * each.other >= each.own}

    def end_of(self, one: OtherTraffic) -> End:
        """Where other programs send or receive."""
        return self.hosts.get(one.rank, one.rank), one.interface, one.sends

    def ends_of(self, link: LinkStats) -> tuple[End, End]:
        """Where a link sends and receives."""
        sender, receiver = (self.hosts.get(rank, rank) for rank in (link.rank, link.peer))
        return (sender, link.interface, True), (receiver, link.peer_interface, False)

    @property
    def has_culprit(self) -> bool:
        """Whether some fault is a host's, or a link's."""
        return any(
            bad and self.culprit(bad, receiver=False).rank is not None
            for bad in (self.lossy, self.delayed, self.slow)
        )

    @cached_property
    def lossy(self) -> tuple[LinkStats, ...]:
        """Links whose lines lose, the worst first."""
        bad = [link for link in self.carrying if lost(link) >= EVIDENCE and link not in self._overflowing]
        return tuple(sorted(bad, key=lambda link: -(link.loss_fraction or 0.0)))

    @cached_property
    def delayed(self) -> tuple[LinkStats, ...]:
        """Links whose way is long, the longest first; also those that carry nothing, as the way is not of the load."""
        wire = self.wire_ms
        if wire is None:
            return ()
        # A message takes half a round trip, and some of them where a connection was idle. What takes much longer than
        # that is no matter of the way: the queue before a slow link may never empty.
        least, far = (part * wire / (self.rounds / 2) for part in (LATENCY_PART, MOST / SLOW_START))
        bad = [
            link
            for link in self.links
            if not link.loopback
            and ((link in self.far and (link.low_rtt_ms or 0.0) >= far) or self._least_trip_ms(link) >= least)
        ]
        return tuple(sorted(bad, key=lambda link: -self.trip_ms(link)))

    def trip_ms(self, link: LinkStats) -> float:
        """The least round trip of a link's way."""
        floor = link.floor_rtt_ms if link in self.far else None
        return max(link.min_rtt_ms or 0.0, floor or 0.0)

    def _least_trip_ms(self, link: LinkStats) -> float:
        """What the system tells; where other programs fill the link, only what is nearly always so is no queue."""
        trip = link.min_rtt_ms or 0.0
        return 0.0 if self._is_filled(link) and trip < WAY * (link.usual_rtt_ms or np.inf) else trip

    def _is_filled(self, link: LinkStats) -> bool:
        """Whether other programs fill an interface of this link."""
        return any(end[:2] in self._filled for end in self.ends_of(link))

    @cached_property
    def far(self) -> dict[LinkStats, float]:
        """Links of a host whose round trips are all longer than those between the others, by about as much always; and
        the evidence of that.

        A way is as long for all that goes over it, whether much or little; a queue is as long as what stands in it. The
        system's own least round trip may be older than the delay. With two hosts there is nothing to compare.
        """
        longest = max((link.seconds for link in self.carrying), default=0.0)
        heard = [
            link
            for link in self.links
            if not link.loopback
            # What was sent over for a while only, as a model at the start, says nothing of the rest.
            and 2 * link.seconds >= longest
            and link.floor_rtt_ms
            and not self._is_filled(link)
        ]
        bad: dict[LinkStats, float] = {}
        for touching, others in self._by_host(heard):
            if not others or not any(link in self.carrying for link in touching):
                continue
            # A twentieth of the moments may be below: a delay begins while links are read.
            low, least = min(link.low_rtt_ms or 0.0 for link in touching), _median(_floor, others)
            longer = max(map(_usual, touching)) - _median(_usual, others)
            found = farther(deviation(low, least, TRIP))
            # A way keeps its links busy for longer than others are; where all are busy alike, all wait in queues.
            if 0.0 < self.slowness(touching) < 1 + HEALTHY_SHARE:
                continue
            if found >= EVIDENCE and low - least >= WAY * longer > 0:
                bad.update(dict.fromkeys(touching, found))
        return bad

    def _by_host(
        self, links: Collection[LinkStats]
    ) -> Iterator[tuple[Sequence[LinkStats], Sequence[LinkStats]]]:
        """For each host that sends: the links that touch it, and those between the others."""
        for host in {self.hosts.get(link.rank, link.rank) for link in links}:
            touching = [link for link in links if host in self._hosts_of(link)]
            yield touching, [link for link in links if link not in touching]

    def _usual_ms(self, bad: Sequence[LinkStats]) -> float:
        """The median busy time per megabyte of the links that are not in `bad`; 0: there is none."""
        good = [link for link in self.carrying if link not in bad and link.busy_ms_per_mb is not None]
        return _median(_busy, good) if good else 0.0

    @cached_property
    def _overflowing(self) -> frozenset[LinkStats]:
        """Links that lose what no longer fits into the queue before them: they are too slow, not faulty."""
        sure = frozenset(link for link in self.carrying if _overflows(link))
        # Where one queue overflows, losses elsewhere that do not come all the time, or are no more, are of queues, too.
        most = max((link.loss_fraction or 0.0 for link in sure), default=0.0)
        return sure | frozenset(
            link
            for link in self.carrying
            if sure and ((link.loss_spread or 0.0) < EVER or (link.loss_fraction or 0.0) <= most)
        )

    @cached_property
    def slow(self) -> tuple[LinkStats, ...]:
        """Links that are busy much longer for each byte than others, the slowest first; neither lossy nor delayed."""
        bad = self.slower.keys() - {*self.lossy, *self.delayed}
        return tuple(sorted(bad, key=lambda link: -_busy(link)))

    @cached_property
    def slower(self) -> dict[LinkStats, float]:
        """Links that are busy for longer than others for each byte, with a longer queue, as far as that is known; and
        the evidence of that.

        A host is compared with the links between the other hosts: in a small ring most links touch a slow one. With
        two hosts there are none, and the two directions are compared.
        """
        known = [link for link in self.carrying if link.busy_ms_per_mb is not None]
        bad: dict[LinkStats, float] = {}
        for touching, others in self._by_host(known):
            usual = _median(_busy, others) if others else min(map(_busy, touching))
            # Both directions between two hosts wait in each other's queues.
            trips = [link for link in others if link.usual_rtt_ms]
            for link in touching:
                trip = None
                if trips and link.usual_rtt_ms:
                    trip = deviation(_usual(link), _median(_usual, trips), TRIP)
                found = slower(deviation(_busy(link), usual, RATE), trip)
                if found >= EVIDENCE:
                    bad[link] = max(found, bad.get(link, 0.0))
        return bad

    def slowness(self, bad: Sequence[LinkStats]) -> float:
        """The busy time per byte of the slowest of `bad` over the median of the other links; 0: there is no other."""
        usual = self._usual_ms(bad)
        # Over a link that carries next to nothing, each byte takes long.
        slowest = max((_busy(link) for link in bad if link in self.carrying), default=0.0)
        return slowest / usual if usual > 0 else 0.0

    def held_up_share(self, bad: Sequence[LinkStats]) -> float:
        """The part of the time that `bad` links are busy for longer than the other links would be with those bytes.

        All of the time in which they are busy, where there is no other link.
        """
        usual = self._usual_ms(bad)
        # A round waits for each bad link in turn.
        shares = [
            max(0.0, _busy(link) - usual) * (link.bytes or 0) / 1e9 / link.seconds
            for link in bad
            if link.seconds > 0
        ]
        return min(1.0, sum(shares))

    @cached_property
    def mbit_per_s(self) -> float | None:
        """At what rate the links between hosts carry while they are busy, their median; None: not known."""
        usual = self._usual_ms(())
        return MBIT / usual if usual > 0 else None

    @cached_property
    def wire_ms(self) -> float | None:
        """The median time on the wire of the largest lasting bucket; None: not known."""
        lasting = [bucket for bucket in self._buckets if not bucket.first_steps_only]
        largest = max(lasting, key=lambda bucket: bucket.bytes, default=None)
        return largest.times.wire_ms.median if largest is not None else None

    @cached_property
    def rounds(self) -> int:
        """How often a bucket waits for a message from another rank: all-reduce over a ring."""
        return 2 * max(1, len({link.rank for link in self.links}) - 1)

    @cached_property
    def hosts(self) -> dict[int, int]:
        """The host of each rank, named by its lowest rank: ranks with a name and an address in common share one."""
        host: dict[int, int] = {}
        known: dict[tuple[str, str], int] = {}
        for link in sorted(self.links, key=lambda link: link.rank):
            key = (self._sidecars[link.rank].host, link.local)
            lowest = known.setdefault(key, host.get(link.rank, link.rank))
            host.setdefault(link.rank, lowest)
        return host

    def culprit(self, bad: Sequence[LinkStats], *, receiver: bool) -> Culprit:
        """What bad links have in common.

        Args:
            receiver: whether the receiver of a single bad link is more likely at fault than its sender.
        """
        pairs = {frozenset(self._hosts_of(link)) for link in bad}
        common = frozenset.intersection(*pairs) if pairs else frozenset()
        if len(pairs) > 1:
            if len(common) != 1:
                return Culprit(None, None)
            (host,) = common
            ranks = tuple(sorted(rank for rank, its in self.hosts.items() if its == host))
            return Culprit(ranks[0], None, ranks)
        if not bad:
            return Culprit(None, None)
        worst = bad[0]
        ends = (worst.peer, worst.rank) if receiver else (worst.rank, worst.peer)
        return Culprit(*ends, tuple(sorted(ends)))

    def _hosts_of(self, link: LinkStats) -> set[int]:
        return {host for host, *_ in self.ends_of(link)}


def lost(link: LinkStats) -> float:
    """The evidence that a link loses more than `LOST`; of what it lost at one moment alone, a queue was full once."""
    if not link.loss_fraction or not link.segments or link.loss_scattered is False:
        return 0.0
    # The likelihood of so many events, by Poisson, over that of as many as cost little. Each is a train of segments.
    events, usual = link.loss_fraction * link.segments / SEVERAL, LOST * link.segments / SEVERAL
    return events * log(events / usual) - (events - usual) if events > usual else 0.0


def _overflows(link: LinkStats) -> bool:
    """Whether it loses in some moments only, or with a long round trip. What had arrived all the same was not lost."""
    by_queue = (link.loss_spread or 1.0) < EVER or (link.loss_rtt_share or 0.0) >= FULL
    return bool(link.loss_fraction) and by_queue


def _busy(link: LinkStats) -> float:
    return link.busy_ms_per_mb or 0.0


def _usual(link: LinkStats) -> float:
    return link.usual_rtt_ms or 0.0


def _floor(link: LinkStats) -> float:
    return link.floor_rtt_ms or 0.0


def _median(value: Callable[[LinkStats], float], links: Sequence[LinkStats]) -> float:
    return float(np.median([value(link) for link in links]))
