"""The bounds that decide, each in one place with what it was derived from; a test fails when one moves by a fifth.

A check has no bound of its own where one of these says the same: what is much, what is most, what is rare means one
thing in the whole diagnosis. Only what is measured of one thing, such as a disk's page, stands beside that thing.
"""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.findings import Confidence

LEAST_STEPS: Final = 4
"""Fewer steps say nothing about a typical one: of four equal signs in a row, chance makes one in eight."""

MANY_STEPS: Final = 10
"""From here on the bounds of a median hold 99% (its sign test: 2 * 0.5**10 is 0.2%, and one step may be another)."""

TWICE: Final = 2
"""Once may be on purpose: to warm up, to compare, to begin."""

SEVERAL: Final = 3
"""So many events can have a rhythm, and a custom; fewer are incidents. A sentence names no more, too."""

LEAST_MS: Final = 1.0
"""Schedulers hand out processors in slices of about this length: what is shorter may be one of them."""

EVENT_MS: Final = 5.0
EVENT_SHARE: Final = 0.5
"""A step by itself is an event, if it takes so much longer than a typical one: interrupts and other programs' slices
take less."""

LONG: Final = 3.0
"""A step that takes so many times the median one is looked at by itself: no load of one program beside makes that."""

WORTH_A_WORD: Final = 0.01
"""What takes less than this share is never told."""

MATTERS_SHARE: Final = 0.05
"""A mistake in the script that surely costs this share is a warning; a cheaper one is a note."""

HEALTHY_SHARE: Final = 0.10
"""A run is healthy only where the evidence excludes a cost of this share of a step."""

LARGE_SHARE: Final = 0.25
"""What other load on a machine may cause is below it: on a busy one healthy ranks are late by up to 0.19 of a step."""

MOST: Final = 0.5
"""Of nothing else can as much be said."""

NEARLY_ALL: Final = 0.9
"""The rest is what chance and other causes add to a thing with one cause."""

SHARED_TIMES: Final = 1.6
"""Shared caches and cores make the same work take up to this many times the processor time: 1.56, measured beside a
compiler; the second thread of a core adds 0.2 to 0.3 of its throughput (Intel, "Hyper-Threading Technology
Architecture and Microarchitecture", 2002), so that each of two takes 1.5 to 1.7 times as long."""

CHANCE: Final = 0.01
"""What is rarer than that is no chance."""

Z99: Final = 2.326
"""Its counterpart of a normal distribution: standard deviations of a one-sided bound of 99%."""


def matters(cost_ms: float, step_ms: float) -> bool:
    """Whether a mistake that is sure costs enough to be a warning."""
    return cost_ms >= MATTERS_SHARE * step_ms > 0


def confidence(steps: int) -> Confidence:
    """The confidence of a finding over this many steps."""
    return "high" if steps >= MANY_STEPS else "medium"
