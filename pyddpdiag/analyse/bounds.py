"""The bounds that decide, all in one place, each with what it was derived from; a test fails when one moves by a fifth.

A check has none of its own: what is much, what is most and what is rare mean one thing in the whole diagnosis. Other
numbers of the analysis limit what is listed and drawn, or are units.
"""

from __future__ import annotations

from math import ceil, log
from statistics import NormalDist
from typing import Final

from pyddpdiag.model.findings import Confidence, Severity

# How many.

LEAST_STEPS: Final = 4
"""Fewer steps say nothing about a typical one: of four equal signs in a row, chance makes one in eight."""

MANY_STEPS: Final = 10
"""From here on the sign test bounds a median with 99%: 2 * 0.5**10 is 0.2%, and one step may be another."""

TWICE: Final = 2
"""Once may be on purpose, as to warm up or to compare; and by chance nothing is twice as much as its like."""

SEVERAL: Final = 3
"""So many events can have a rhythm, and a custom; fewer are incidents. No sentence names more."""

LEAST_SAMPLES: Final = 5
"""Fewer looks than the usual least for a normal approximation of counts (Cochran, 1954) name no line."""

# How much, as a share.

WORTH_A_WORD: Final = 0.01
"""What takes less of the run, or of what is left, is never named."""

MATTERS_SHARE: Final = 0.05
"""A mistake in the script that surely costs this share is a warning; a cheaper one is a note."""

HEALTHY_SHARE: Final = 0.10
"""A run is healthy only where the evidence excludes a cost of this share of a step."""

QUIET_SHARE: Final = 0.12
"""On a quiet machine, healthy ranks are late by up to 0.10 of a step: cores share caches, and not only with programs
of this machine."""

LARGE_SHARE: Final = 0.25
"""On a busy machine, they are late by up to 0.19, for seconds: what is larger is not what other load causes."""

MOST: Final = 0.5
"""Of nothing else can as much be said."""

NEARLY_ALL: Final = 0.9
"""The rest of a thing with one cause is what chance and other causes add."""

CHANCE: Final = 0.01
"""What is rarer than that is no chance."""

SURENESS: Final[dict[Confidence, float]] = {"medium": 0.8}
"""Of what it costs: what is of medium confidence comes before what is sure only if it costs that much more."""

# How long.

LEAST_MS: Final = 1.0
"""Schedulers hand out processors in slices of about this length: what is shorter may be one of them."""

EVENT_MS: Final = 5.0
"""A step is an event of its own, if it takes so much and `MOST` of a typical one longer: interrupts and other programs'
slices take less."""

LONG: Final = 3.0
"""A step that takes so many times the median one is looked at by itself: no program beside it makes that."""

STANDS_MS: Final = 100.0
"""What is shorter can hit any rank of a busy machine: outside of steps it counts in a rhythm, at the end of every
epoch, or if it comes more often than by chance. What reaches all ranks, as a signal, does so within this time."""

SET_UP_MS: Final = 1000.0
"""By so much longer than any other, at least: making a model and a data set takes each rank another time."""

# Processors.

SHARED_TIMES: Final = 1.7
"""Shared caches and cores make the same work take up to this many times the processor time: 1.56, measured beside a
compiler, and 1.62 at a load of 7 per core; the second thread of a core adds 0.2 to 0.3 of its throughput (Intel,
"Hyper-Threading Technology Architecture and Microarchitecture", 2002), so that each of two takes 1.5 to 1.7 times as
long."""

BUSY_LOAD: Final = 1.5
"""Above this load average per core, a machine has more work than it can do, and slows its ranks unevenly."""

MANY_THREADS: Final = 4
"""This many threads for each core are a mistake in any case."""

WORK_SHARE: Final = 0.15
"""How much the ranks' processor times of a step differ: their standard deviation over their mean. Healthy ranks stay
below 0.13, and inputs of different length reach 0.17 to 0.35; who waits for a core makes no difference. Where the
machine works for others in the ranks' time (the network of other programs), healthy ranks reached 0.2 to 0.6."""

FAULT_MS: Final = 0.1
"""What a page costs that has to be read from a disk, at least: 0.105 ms, measured on a virtual disk of solid state.
Where it costs more, the cause may go unseen; it is never named for too little."""

BACKWARD_SHARE: Final = 2 / 3
"""Of the compute: a layer's backward computes two products (for its inputs and its weights), its forward one."""

# Parts of a run.

WINDOW: Final = 12
"""Steps of a window, over which a usual step is taken: its median is bounded by 98% (sign test)."""

NEAR: Final = 5
"""Each step is looked at as the median of so many: what takes one or two is no change of all. And so many long ones
right at the begin, as torch.compile makes them, are a single incident."""

BLOCKS: Final = 8
"""Equal parts of the time, of each of which the median counts. That so many medians of a memory that does not grow are
in rising order comes about by chance once in 8! = 40,320 times."""

# The wire.

LOOPBACK_MS_PER_BYTE: Final = 2e-6
"""Over the loopback interface: 25 MiB take two ranks 42 to 54 ms, nearly all of it for their bytes."""

ASSUMED_MS_PER_BYTE: Final = 1e-5
"""What bytes are assumed to take where nothing tells: 100 MB/s, about 1 Gbit/s."""

ROUND_MS: Final = 0.2
"""What Gloo's threads add to a round of the ring at most, besides the way there and back."""

SLOW_START: Final = 4
"""A round takes so many times that at most, where nothing says that threads share cores: a connection that was idle
begins with a few packets per round trip."""

ALL_LATENCY_BYTES: Final = 2**16
"""Up to this size, bytes take as long as a single one, and neither splitting nor rounding helps."""

SMALL_COUNT: Final = 8
"""From this number of buckets on, small ones are judged even if they are of one size."""

CROWDED_MS: Final = 20.0
"""So long each of many buckets may wait for a core on a busy machine; more is no latency over short round trips."""

PIECES: Final = 4
"""So many buckets are enough to hide most of one behind backward."""

LATENCY_PART: Final = 0.2
"""In the buckets that are advised, latency is this part of the wire time; where the way of the messages takes as much,
it is long. Sound links stay below a tenth of that."""

HALVED: Final = 0.4
"""What 16 bits save of a wire time: somewhat less than half, as measured."""

LATENCY_SHARE: Final = 1 / 9
"""Of Gloo's time for a bucket of 4 KiB: measured between 2 and 4 ranks, the lower end of the least gain's interval."""

BYTES_SHARE: Final = 1 / 7.1
"""Of Gloo's time for a bucket of 25 MiB, likewise."""

SMALL_CALL: Final = 4096
"""Bytes of a step. A few values are logged; a batch's outputs, or a model's parameters, are more."""

# Links. Ranges of values are of runs over links of network namespaces, on a quiet machine and on one with up to 16
# ready threads per core; the bounds hold for further 32 runs with other doses and seeds.

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

EVER: Final = 0.8
"""In this part of the moments with traffic a line that loses does so (0.9 and more), a queue that overflows does not
(0.12 to 0.75)."""

FULL: Final = 1.2
"""The round trip at losses over the usual one: 0.87 to 1.18 on a line that loses, 1.14 to 1.85 where a queue overflows.
Where the two overlap, `EVER` tells."""

EVERYWHERE: Final = 0.02
"""Links that have no host in common and lose less are full, not faulty: a sender loses so many to the queue that it
fills, as it makes room at each loss."""

READING_S: Final = 0.5
"""The recorder reads connections so often."""

PARTLY: Final = 0.4
"""A stall between two readings leaves no time for a tenth of what a link usually carries. One that begins between two
and ends between others leaves less than 60% to each of these, and as much to all of them as to one fewer."""

HEADERS: Final = 1.1
"""An interface also counts headers and confirmations: at most a tenth of what large segments carry."""

# Values.

ROUNDING: Final = 1e-6
"""Norms of weights no farther apart than this, relatively: other processors or numbers of threads round the last bits
otherwise."""

CLOSE: Final = 1e-5
"""Sums of squares and maxima of gradients this close, relatively, are of the same data: threads sum in other orders. So
is the mean of the sums' logarithms, this close."""

LEAST_VALUES: Final = 16
"""Gradients of fewer values may be equal by chance: labels of a few classes, counts. As many are a loss and metrics."""

# Signs of life, and clocks.

ALIVE_MS: Final = 1_000.0
"""A process that lives gives a sign, and handles a signal, within this time: looks and heartbeats come more often, and
Python handles Ctrl-C when it next runs."""

LOST_S: Final = 10.0
"""Five notes of a machine that did not come; and clocks that a network keeps in step never differ by so much."""

BEHIND_MS: Final = 60_000.0
"""A heartbeat that is older than the freshest one by this much has stopped, however late files arrive."""

UNKNOWN_STEP_MS: Final = 30_000.0
"""Before steps are known, something may well take this long: the first batch, the first pass."""

# Derived from these.

Z99: Final = NormalDist().inv_cdf(1 - CHANCE)
"""What is rarer than `CHANCE` lies beyond so many standard deviations of a normal distribution, to one side."""

MANY_PASSES: Final = ceil(log(CHANCE) / log(1 - HEALTHY_SHARE))
"""Of so many passes, chance leaves none different, if `HEALTHY_SHARE` of all are."""

SURELY_EARLY: Final = 1 - 1 / SHARED_TIMES
"""A rank that has a core and its caches to itself is early by up to this share of a step, and the others are not
late."""

SMALL_BYTES: Final = PIECES * ALL_LATENCY_BYTES
"""A bucket of fewer is small: in a larger one, bytes take a good part of the time."""

METRICS: Final = 4 * LEAST_VALUES
"""Bytes of a step that are a loss and some metrics: so many of 4 bytes each."""

STILL_MS: Final = SEVERAL * ALIVE_MS
"""So many signs of life that did not come are no ordinary step, if that is `MANY_STEPS` steps as well."""


def least_ms(step_ms: float) -> float:
    """From which cost on something is a finding, in steps of this length."""
    return max(LEAST_MS, HEALTHY_SHARE * step_ms)


def event_ms(step_ms: float) -> float:
    """By how much longer a step must take to be an event of its own, where a typical one takes so long."""
    return max(EVENT_MS, MOST * step_ms)


def severity(cost_ms: float, step_ms: float) -> Severity:
    """Of a mistake that surely costs so much of a step, or of the run."""
    return "warning" if cost_ms >= MATTERS_SHARE * step_ms > 0 else "note"


def confidence(steps: int) -> Confidence:
    """The confidence of a finding over this many steps."""
    return "high" if steps >= MANY_STEPS else "medium"
