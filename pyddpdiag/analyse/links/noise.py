"""By how much sound links differ, and from where on a difference is one: each bound that decides about links.

Ranges of values are of runs over links of network namespaces, on a quiet machine and on one with up to 16 ready threads
per core; the bounds hold for further 32 runs with other doses and seeds.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Final

from pyddpdiag.analyse.bounds import confidence
from pyddpdiag.model.findings import Confidence

MBIT: Final = 8e3
"""1 MB in 1 ms, in Mbit/s."""

LEAST_BYTES: Final = 1_000_000
"""What carries less, or less than `MATTERS_SHARE` of what the busiest link does, is no part of a ring: small messages,
or what was sent at the start alone."""

RATE: Final = 0.2
"""Standard deviation of the logarithm of a sound link's busy time for each byte, over that of other links: of 100, one
differs by 1.6 times, which is exp(2.33 * 0.2)."""

TRIP: Final = 0.35
"""The same of its usual round trip, and of the least: of 100 links, one has a round trip of 2.25 times the others'."""

EVIDENCE: Final = 5.5
"""By so much an explanation must be likelier than chance, as a natural logarithm: 3.3 standard deviations of the normal
distribution, 1 of 2000 sound links. A run has some ten of them."""

WAY: Final = 0.6
"""The part of what a round trip is longer by that never goes away: 0.62 to 1 on a long way, least on a busy machine; at
most 0.58 in the queue before a slow link, which fills and empties."""

LOST: Final = 0.0015
"""So many lost segments cost little: TCP's window is 1.22 / sqrt(0.0015) = 31 segments then (Mathis et al. 1997), as
much as a link of 1 Gbit/s with a round trip of 0.4 ms holds."""

LOADED_BYTES: Final = 50_000
"""Between two readings with less traffic than this the round trip says nothing of the load."""

EVER: Final = 0.8
"""In this part of the moments with traffic a line that loses does so (0.9 and more), a queue that overflows does not
(0.12 to 0.75)."""

FULL: Final = 1.2
"""The round trip at losses over the usual one: 0.87 to 1.18 on a line that loses, 1.14 to 1.85 where a queue overflows.
Where the two overlap, `EVER` tells."""

EVERYWHERE: Final = 0.02
"""Links that have no host in common and lose less are full, not faulty: a sender loses so many to the queue that it
fills, as it makes room at each loss."""

# Standing still.

READING_S: Final = 0.5
"""The recorder reads connections so often."""

WHOLE: Final = 0.85
PARTLY: Final = 0.4
"""A stall between two readings leaves no time for 15% of what a link usually carries. One that begins between two and
ends between others leaves less than 60% to each of these, and as much to all of them as to one fewer that it fills."""

# Interfaces.

HEADERS: Final = 1.1
"""An interface also counts headers and confirmations: at most a tenth of what large segments carry."""

FASTER: Final = 1.5
"""A nominal speed that is higher by less than this makes no difference worth naming."""


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
