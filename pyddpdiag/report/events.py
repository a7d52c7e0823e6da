"""Single events of all ranks side by side, for the picture of a step and for time lines of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyddpdiag.model.details import Events, RankTimeline
from pyddpdiag.trace.layout import BucketTime


def lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each span, so that none overlaps another: the first one that is free again when it begins."""
    found = [0] * len(spans)
    busy: list[int] = []
    for begin, end, place in sorted((begin, end, place) for place, (begin, end) in enumerate(spans)):
        lane = next((at for at, until in enumerate(busy) if until <= begin), len(busy))
        busy[lane : lane + 1] = [end]
        found[place] = lane
    return found


def last_arrivals(lines: Iterable[RankTimeline]) -> dict[tuple[int, int], tuple[int, int]]:
    """By group and sequence of each bucket's all-reduce: when the last rank brought it, ns, and which one."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for line in lines:
        arrived = line.buckets.times[:, BucketTime.ENQUEUED].tolist()
        keys = zip(line.buckets.group.tolist(), line.buckets.sequence.tolist(), strict=True)
        for key, at in zip(keys, arrived, strict=True):
            if at > last.get(key, (0, 0))[0]:
                last[key] = (at, line.rank)
    return last


def moments(buckets: Events, place: int, arrived: int) -> tuple[int, int, int, int]:
    """When a bucket that has ended was handed over, brought by the last rank (`arrived`), begun and ended, in order."""
    enqueued, started, ended = (
        int(buckets.times[place, at]) for at in (BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
    )
    last = max(enqueued, min(arrived, ended))
    return enqueued, last, min(max(started, last), ended) if started else last, ended
