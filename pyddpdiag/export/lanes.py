"""Puts spans that overlap into lanes, in each of which one comes after the other."""

from __future__ import annotations

from collections.abc import Sequence


def lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each span: the first one that is free again when it begins."""
    found = [0] * len(spans)
    busy: list[int] = []
    for begin, end, place in sorted((begin, end, place) for place, (begin, end) in enumerate(spans)):
        lane = next((at for at, until in enumerate(busy) if until <= begin), len(busy))
        busy[lane : lane + 1] = [end]
        found[place] = lane
    return found
