"""The bounds that decide, all in one place, each with what it was derived from; a test fails when one moves by a fifth.

A check has none of its own: what is much, what is most and what is rare mean one thing in the whole diagnosis. How much
links differ is in `links/noise.py`. Other numbers of the analysis limit what is listed and drawn, or are units.
"""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.findings import Confidence

# How many.

LEAST_STEPS: Final = 4
"""Fewer steps say nothing about a typical one: of four equal signs in a row, chance makes one in eight."""

MANY_STEPS: Final = 10
"""From here on the sign test bounds a median with 99%: 2 * 0.5**10 is 0.2%, and one step may be another."""

MANY_PASSES: Final = 50
"""So many passes without one that is different leave it a share of 9% at most, with 99%: 1 - 0.01**(1 / 50)."""

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

Z99: Final = 2.326
"""Its counterpart of a normal distribution: standard deviations of a one-sided bound of 99%."""

SURENESS: Final[dict[Confidence, float]] = {"medium": 0.8}
"""Of what it costs: what is of medium confidence comes before what is sure only if it costs that much more."""

# How long.

LEAST_MS: Final = 1.0
"""Schedulers hand out processors in slices of about this length: what is shorter may be one of them."""

EVENT_MS: Final = 5.0
EVENT_SHARE: Final = 0.5
"""A step is an event of its own, if it takes so much longer than a typical one: interrupts and other programs' slices
take less."""

LONG: Final = 3.0
"""A step that takes so many times the median one is looked at by itself: no program beside it makes that."""

STANDS_MS: Final = 100.0
"""What is shorter can hit any rank of a busy machine: outside of steps it counts in a rhythm, at the end of every
epoch, or if it comes more often than by chance."""

SET_UP_MS: Final = 1000.0
"""By so much longer than any other, at least: making a model and a data set takes each rank another time."""

# Processors.

SHARED_TIMES: Final = 1.6
"""Shared caches and cores make the same work take up to this many times the processor time: 1.56, measured beside a
compiler; the second thread of a core adds 0.2 to 0.3 of its throughput (Intel, "Hyper-Threading Technology
Architecture and Microarchitecture", 2002), so that each of two takes 1.5 to 1.7 times as long."""

SURELY_EARLY: Final = 1 - 1 / SHARED_TIMES
"""A rank that has a core and its caches to itself is early by up to this share of a step, and the others are not
late."""

BUSY_LOAD: Final = 1.5
"""Above this load average per core, a machine has more work than it can do, and slows its ranks unevenly."""

MANY_THREADS: Final = 4
"""This many threads for each core are a mistake in any case."""

WORK_SHARE: Final = 0.15
"""How much the ranks' processor times of a step differ: their standard deviation over their mean. Healthy ranks stay
below 0.13, and inputs of different length reach 0.17 to 0.35; who waits for a core makes no difference. Where the
machine works for others in the ranks' time (the network of other programs), healthy ranks reached 0.2 to 0.6."""

LEAST_WORK: Final = 0.1
"""What a machine does beside only ever adds to a rank's time. So inputs differ if its smallest steps, by this quantile,
are below its usual one by as much as the ranks differ: 1.9 to 2.6 times that with inputs of different length, 0.3 to
0.8 times with other work."""

FAULT_MS: Final = 0.1
"""What a page costs that has to be read from a disk, at least: 0.105 ms, measured on a virtual disk of solid state.
Where it costs more, the cause may go unseen; it is never named for too little."""

BACKWARD_SHARE: Final = 2 / 3
"""Of the compute: a layer's backward computes two products (for its inputs and its weights), its forward one."""

# Parts of a run.

WINDOW: Final = 12
"""Steps of a window, over which a usual step is taken: its median is bounded by 98% (sign test)."""

NEAR: Final = 5
"""Each step is looked at as the median of so many: what takes one or two is no change of all."""

SHORTEST: Final = 8
"""Steps of a stretch that is found by how much it is over a threshold: 0.5**8 is a chance of 0.4%."""

WARM_UP: Final = 5
"""So many long steps right at the begin, as torch.compile makes them, are a single incident."""

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

SMALL_BYTES: Final = 2**18
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

METRICS: Final = 64
"""Bytes of a step that are a loss and some metrics."""

# Values.

ROUNDING: Final = 1e-6
"""Norms of weights no farther apart than this, relatively: other processors or numbers of threads round the last bits
otherwise."""

CLOSE: Final = 1e-5
"""Sums of squares and maxima of gradients this close, relatively, are of the same data: threads sum in other orders. So
is the mean of the sums' logarithms, this close."""

LEAST_VALUES: Final = 16
"""Gradients of fewer values may be equal by chance: labels of a few classes, counts."""

# Signs of life, and clocks.

ALIVE_MS: Final = 1_000.0
"""A process that lives gives a sign, and handles a signal, within this time: looks and heartbeats come more often, and
Python handles Ctrl-C when it next runs."""

TOGETHER_MS: Final = 50.0
"""Ranks to which somebody sends a signal get it within this time."""

LOST_S: Final = 10.0
"""Five notes of a machine that did not come."""

BEHIND_MS: Final = 60_000.0
"""A heartbeat that is older than the freshest one by this much has stopped, however late files arrive."""

STILL_MS: Final = 3_000.0
"""So long without a record is no ordinary step, if that is `MANY_STEPS` steps as well."""

UNKNOWN_STEP_MS: Final = 30_000.0
"""Before steps are known, something may well take this long: the first batch, the first pass."""

OFF_S: Final = 10.0
"""Clocks that a network keeps in step never differ so much."""

CLOCK_SHARE: Final = 0.1
"""Clocks of different machines may be wrong by this part of a time between them."""


def least_ms(step_ms: float) -> float:
    """From which cost on something is a finding, in steps of this length."""
    return max(LEAST_MS, HEALTHY_SHARE * step_ms)


def event_ms(step_ms: float) -> float:
    """By how much longer a step must take to be an event of its own, where a typical one takes so long."""
    return max(EVENT_MS, EVENT_SHARE * step_ms)


def matters(cost_ms: float, step_ms: float) -> bool:
    """Whether a mistake that is sure costs enough to be a warning."""
    return cost_ms >= MATTERS_SHARE * step_ms > 0


def confidence(steps: int) -> Confidence:
    """The confidence of a finding over this many steps."""
    return "high" if steps >= MANY_STEPS else "medium"
