"""Which links lose, delay or hold up what they carry, and which host they have in common.

Links are compared with each other and with the time that a bucket takes, never with an absolute speed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from pyddpdiag.analyse.links.culprit import Culprit
from pyddpdiag.model import BucketStats, LinkStats
from pyddpdiag.model.sidecar import Sidecar

LOSS_THRESHOLD: Final = 0.003
"""Healthy links stay below a seventh of this, also on a starved machine."""

FULL_QUEUE: Final = 1.15
SURELY_FULL_QUEUE: Final = 1.27
"""The round trip at losses over the usual one: random losses 0.87 to 1.07, a queue that overflows 1.14 to 1.85. Where
something is lost all the time, which a line does (`ALWAYS`), random losses reach 1.16: chance makes the few long round
trips lose more."""

RARE: Final = 0.5
ALWAYS: Final = 0.9
"""In this part of the moments with traffic losses must be seen, if there are many: a queue overflows now and then (0.12
to 0.28 of the moments, 0.75 where it is full nearly all the time), a line loses all the time (0.9 and more)."""

STANDING: Final = 5.0
"""The usual round trip over the least: losses that come rarely cannot keep a queue so full, as each makes its sender
slow down. Lossy lines reach 4.1; queues that overflow without a sign in the round trips at losses have 5.1 and more."""

OVERFLOW_THRESHOLD: Final = 0.02
OVERFLOW_SLOW_THRESHOLD: Final = 3.0
"""Where the round trips do not tell: a link so slow (as by `SLOW_THRESHOLD`) that loses less is slow first of all."""

SURE_LOSSES: Final = 10
"""Fewer lost segments may be chance."""

FAR: Final = 2.25
SURELY_FAR: Final = 3.0
"""The least round trip of a host's links over the other links', both medians. Sound links stay below 2; long ways whose
delay began while they were read reach 2.4 and more. So does a slow link, of which the queue never empties: where the
links of a host are busy for longer, too (`QUEUED_SLOW_THRESHOLD`), the second must be reached."""

STEADY: Final = 0.75
"""The round trip that a twentieth stays below over the usual one, the median of a host's links that carry. A long way
has 0.82 to 0.98. The queue before a slow link fills and empties: 0.44 to 0.69."""

STEADY_AT_ALL: Final = 0.6
"""Where the way is surely far (`SURELY_FAR`), and its links no busier than others (`QUEUED_SLOW_THRESHOLD`), as those
of a slow link are: other load on the cores made the round trips of one less steady, 0.7."""

ALIKE: Final = 0.25
ALIKE_QUEUES: Final = 1.25
"""A long way is as long for all that goes over it; a queue is as long as what stands in it. So the usual round trips
of a far host's links differ by at most this part of their median, or by so many times the usual round trip of the
other links. Long ways reach 0.15 and 0.9, the steady queue of a slow link 0.46 and 1.75."""

LONGER: Final = 1.5
"""What is usual on the links of a far host, over what is on the others: as the way is longer for all that goes over it.
Long ways reach 5.8 and more; in a network that is slow for all, queues that are never empty have 0.8 to 1.4."""

HEARD_BYTES: Final = 20_000
HEARD_SEGMENTS: Final = 200
"""A link that carries less, and in fewer segments, has hardly measured a round trip. Gloo's small messages go over
links that carry nothing else: their round trips show whether it is the way or a queue that makes those of others long.
"""

LATENCY_THRESHOLD: Final = 0.1
"""A round trip of at most this part of a bucket's wire time is no delay; healthy ones are below a tenth of it."""

THRESHOLD_RANKS: Final = 4
"""With more ranks than this a bucket takes more rounds, so a round is a smaller part of it."""

SLOW_THRESHOLD: Final = 2.0
"""Busy time per byte over the other links' median. Healthy links stay below 1.6; one of a third of the rate has 2.4,
because the others are busy for longer, too."""

QUEUED: Final = 2.5
QUEUED_SLOW_THRESHOLD: Final = 1.6
QUEUED_AT_ALL: Final = 1.35
"""Usual round trip and busy time of a host's links over the others', medians: both together tell a link of half the
rate, if their product is that of these two, and they reach the first and the third. Healthy links stay below 1.8 and
1.3, lossy ones below 1.3 and 1.3; far ones have both and are found earlier. A ring waits for its slow link, so all are
busy for longer: 5 and 1.4 were seen with one of a third of the rate, and 2.8 and 1.58."""

LEAST_BYTES: Final = 1_000_000
LEAST_SHARE: Final = 0.05
"""A link that carried less than this part of what the busiest one did is no part of the ring."""


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
    ) -> None:
        """Look at links beside the buckets that went over them."""
        self.links = tuple(links)
        most = max((link.bytes or 0 for link in links), default=0)
        threshold = max(LEAST_BYTES, LEAST_SHARE * most)
        self.carrying = tuple(link for link in links if (link.bytes or 0) >= threshold and not link.loopback)
        self._buckets = buckets
        self._sidecars = sidecars

    @property
    def has_culprit(self) -> bool:
        """Whether some fault is a host's, or a link's."""
        return any(
            bad and self.culprit(bad, receiver=False).rank is not None
            for bad in (self.lossy, self.delayed, self.slow)
        )

    @cached_property
    def lossy(self) -> tuple[LinkStats, ...]:
        """Links that surely lose more than `LOSS_THRESHOLD`, the worst first; not by the queue of a slow link."""
        bad = [link for link in self.carrying if _surely_loses(link) and link not in self._overflowing]
        return tuple(sorted(bad, key=lambda link: -(link.loss_fraction or 0.0)))

    @cached_property
    def delayed(self) -> tuple[LinkStats, ...]:
        """Links whose round trip is a large part of a bucket's time on the wire, the longest first."""
        wire = self.wire_ms
        if wire is None:
            return ()
        # Also of links that carry nothing: the round trip is that of the way and not of the load.
        bad = [
            link
            for link in self.links
            if not link.loopback
            and (
                link in self._far
                or (link.min_rtt_ms is not None and link.min_rtt_ms >= self.latency_threshold * wire)
            )
        ]
        return tuple(sorted(bad, key=lambda link: -self.trip_ms(link)))

    def trip_ms(self, link: LinkStats) -> float:
        """The least round trip of a link's way."""
        floor = link.floor_rtt_ms if link in self._far else None
        return max(link.min_rtt_ms or 0.0, floor or 0.0)

    @cached_property
    def _far(self) -> frozenset[LinkStats]:
        """Links of a host whose round trips are all long and steady, beside those between the other hosts.

        The system's own least round trip may be older than the delay. With two hosts there is nothing to compare.
        """
        heard = {
            link: link.floor_rtt_ms
            for link in self.links
            if not link.loopback and _is_heard(link) and link.floor_rtt_ms is not None
        }
        bad: set[LinkStats] = set()
        for touching, others in self._by_host(heard):
            if not others:
                continue
            is_busier = self._busier(touching) >= QUEUED_SLOW_THRESHOLD
            mine, theirs = _median(heard, touching), _median(heard, others)
            if mine < (SURELY_FAR if is_busier else FAR) * theirs:
                continue
            if not _are_one_way(touching, others):
                continue
            # What carries little has no queue of its own.
            loaded = [link for link in touching if link in self.carrying] or touching
            steadiness = [
                (link.low_rtt_ms or 0.0) / link.usual_rtt_ms for link in loaded if link.usual_rtt_ms
            ]
            steady = STEADY_AT_ALL if mine >= SURELY_FAR * theirs and not is_busier else STEADY
            if steadiness and float(np.median(steadiness)) >= steady:
                bad.update(touching)
        return frozenset(bad)

    def _by_host(
        self, links: Collection[LinkStats]
    ) -> Iterator[tuple[Sequence[LinkStats], Sequence[LinkStats]]]:
        """For each host that sends: the links that touch it, and those between the others."""
        for host in {self.hosts.get(link.rank, link.rank) for link in links}:
            touching = [link for link in links if host in self._hosts_of(link)]
            yield touching, [link for link in links if link not in touching]

    def _busier(self, some: Sequence[LinkStats]) -> float:
        """Busy time per byte of some links over that of the others, both medians; 0: not known."""
        mine = [
            link.busy_ms_per_mb for link in self.carrying if link in some and link.busy_ms_per_mb is not None
        ]
        usual = self._usual_ms(some)
        return float(np.median(mine)) / usual if mine and usual > 0 else 0.0

    def _usual_ms(self, bad: Sequence[LinkStats]) -> float:
        """The median busy time per megabyte of the links that are not in `bad`; 0: there is none."""
        good = [
            link.busy_ms_per_mb
            for link in self.carrying
            if link not in bad and link.busy_ms_per_mb is not None
        ]
        return float(np.median(good)) if good else 0.0

    @cached_property
    def _overflowing(self) -> frozenset[LinkStats]:
        """Links that lose what no longer fits into the queue before them: they are too slow, not faulty."""
        slow = self._slower_by(OVERFLOW_SLOW_THRESHOLD)
        sure = frozenset(
            link
            for link in self.carrying
            if (
                link.loss_rtt_share >= _full_queue(link) or (link.loss_spread or 1.0) < RARE or _stands(link)
                if link.loss_rtt_share is not None
                else link in slow
                and (link.loss_fraction or 0.0) < OVERFLOW_THRESHOLD
                and link not in self.delayed
            )
        )
        # Where one queue overflows, losses elsewhere that do not come all the time are from queues, too.
        return sure | frozenset(link for link in self.carrying if sure and (link.loss_spread or 0.0) < ALWAYS)

    @cached_property
    def slow(self) -> tuple[LinkStats, ...]:
        """Links that are busy much longer for each byte than others, the slowest first; neither lossy nor delayed."""
        bad = (self._slower_by(SLOW_THRESHOLD) | self._queued) - {*self.lossy, *self.delayed}
        return tuple(sorted(bad, key=lambda link: -(link.busy_ms_per_mb or 0.0)))

    @cached_property
    def _queued(self) -> frozenset[LinkStats]:
        """Links of a host at which what is sent stands in a queue, beside those between the other hosts."""
        usual = {link: link.usual_rtt_ms for link in self.carrying if link.usual_rtt_ms is not None}
        bad: set[LinkStats] = set()
        for touching, others in self._by_host(usual):
            if not others:
                continue
            longer = _median(usual, touching) / max(_median(usual, others), 1e-9)
            busier = self._busier(touching)
            both = longer * busier >= QUEUED * QUEUED_SLOW_THRESHOLD
            if both and longer >= QUEUED and busier >= QUEUED_AT_ALL:
                bad.update(touching)
        return frozenset(bad)

    def _slower_by(self, factor: float) -> frozenset[LinkStats]:
        """Links that are busy so many times as long for each byte as others, for whatever reason.

        A host is compared with the links between the other hosts: in a small ring most links touch a slow one. With
        two hosts there are none, and the two directions are compared.
        """
        busy = {link: link.busy_ms_per_mb for link in self.carrying if link.busy_ms_per_mb is not None}
        bad: set[LinkStats] = set()
        for touching, others in self._by_host(busy):
            threshold = factor * (_median(busy, others) if others else min(busy.values()))
            bad.update(link for link in touching if 0 < threshold <= busy[link])
        return frozenset(bad)

    def slowness(self, bad: Sequence[LinkStats]) -> float:
        """The busy time per byte of the slowest of `bad` over the median of the other links; 0: there is no other."""
        usual = self._usual_ms(bad)
        return max((link.busy_ms_per_mb or 0.0) for link in bad) / usual if usual > 0 else 0.0

    def held_up_share(self, bad: Sequence[LinkStats]) -> float:
        """The part of the time that `bad` links are busy for longer than the other links would be with those bytes.

        All of the time in which they are busy, where there is no other link.
        """
        usual = self._usual_ms(bad)
        # A round waits for each bad link in turn.
        shares = [
            max(0.0, (link.busy_ms_per_mb or 0.0) - usual) * (link.bytes or 0) / 1e9 / link.seconds
            for link in bad
            if link.seconds > 0
        ]
        return min(1.0, sum(shares))

    @cached_property
    def mbit_per_s(self) -> float | None:
        """At what rate the links between hosts carry while they are busy, their median; None: not known."""
        usual = self._usual_ms(())
        # 1 MB in 1 ms are 8000 Mbit/s.
        return 8e3 / usual if usual > 0 else None

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
    def latency_threshold(self) -> float:
        """`LATENCY_THRESHOLD` for this many ranks."""
        return LATENCY_THRESHOLD * min(1.0, 2 * (THRESHOLD_RANKS - 1) / self.rounds)

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
            bad: the links, the worst first.
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
        return {self.hosts.get(link.rank, link.rank), self.hosts.get(link.peer, link.peer)}


def _is_heard(link: LinkStats) -> bool:
    return (link.bytes or 0) >= HEARD_BYTES or (link.segments or 0) >= HEARD_SEGMENTS


def _surely_loses(link: LinkStats) -> bool:
    if link.loss_fraction is None or not link.segments:
        return False
    # A line loses all the time. A queue that overflowed once has lost dozens at once.
    if link.loss_scattered is False:
        return False
    lost = link.loss_fraction * link.segments
    # Losses come one by one, at least: their number is as uncertain as its root. 2.33 of it are 99% one-sided.
    return lost >= SURE_LOSSES and (lost - 2.33 * float(np.sqrt(lost))) / link.segments >= LOSS_THRESHOLD


def _full_queue(link: LinkStats) -> float:
    return SURELY_FULL_QUEUE if (link.loss_spread or 0.0) >= ALWAYS else FULL_QUEUE


def _median(values: Mapping[LinkStats, float], links: Sequence[LinkStats]) -> float:
    """Of the values of some links."""
    return float(np.median([values[link] for link in links]))


def _are_one_way(touching: Sequence[LinkStats], others: Sequence[LinkStats]) -> bool:
    """Whether the usual round trips of a host's links are those of one long way."""
    mine, theirs = ([link.usual_rtt_ms or 0.0 for link in links] for links in (touching, others))
    usual, elsewhere = float(np.median(mine)), float(np.median(theirs))
    threshold = max(ALIKE * usual, ALIKE_QUEUES * elsewhere)
    return usual >= LONGER * elsewhere and max(mine) - min(mine) <= threshold


def _stands(link: LinkStats) -> bool:
    """Whether a queue is full nearly all the time before a link that loses too rarely to tell how losses are spread."""
    if link.loss_spread is not None or not link.usual_rtt_ms or not link.floor_rtt_ms:
        return False
    return link.usual_rtt_ms >= STANDING * link.floor_rtt_ms
