"""Buckets over all their occurrences, and which way those of each process group took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.distinct import numbered
from pyddpdiag.analyse.grouped import stats_by
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.wire_fit import lasting_buckets
from pyddpdiag.model.rows import BucketStats, GroupStats
from pyddpdiag.model.stats import METRICS, BucketTimes
from pyddpdiag.trace.layout import DTYPE_NAMES
from pyddpdiag.trace.rows import Bool, Int64, UInt64
from pyddpdiag.trace.run import Run

BUCKET_LIMIT: Final = 10_000
"""No model has this many buckets; a damaged file could claim millions."""


def bucket_stats(
    run: Run, occurrences: Occurrences, names: Names, left_out: tuple[int, ...], chosen: Bool | None = None
) -> tuple[BucketStats, ...]:
    """Every bucket, the one that cost most time first.

    Args:
        left_out: steps that medians leave out, unless the bucket was seen in no others.
        chosen: the occurrences to count; None = all.
    """
    rows = slice(None) if chosen is None else np.flatnonzero(chosen)
    # Modules of the same shape in other groups have buckets of the same identity.
    codes = _pair_codes(occurrences.reference[rows], occurrences.group[rows])
    keys = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.uint64)
    keys[codes] = occurrences.reference[rows]
    total = np.bincount(codes, np.nan_to_num(occurrences.total_ms[rows]), minlength=len(keys))
    complete = occurrences.complete[rows]
    count = np.bincount(codes[complete], minlength=len(keys))
    seen = np.bincount(codes, minlength=len(keys))
    first, last = _span(occurrences.step[rows], codes, len(keys))
    warm = np.isin(occurrences.step[rows], np.array(left_out, np.int64))
    only_warm = np.bincount(codes[complete & ~warm], minlength=len(keys)) == 0
    judged = complete & (~warm | only_warm[codes])
    times = {
        name: stats_by(getattr(occurrences, name)[rows][judged], codes[judged], len(keys)) for name in METRICS
    }
    shared_count = np.bincount(codes[occurrences.shared[rows]], minlength=len(keys))
    judged_count = np.bincount(codes[judged], minlength=len(keys))
    # Any occurrence gives the other values: they are the same in all.
    sample = np.empty(len(keys), np.int64)
    sample[codes[::-1]] = np.arange(len(codes))[::-1]
    if chosen is not None:
        sample = np.flatnonzero(chosen)[sample]
    final_step = int(occurrences.step.max()) if len(occurrences) else 0
    arrivals = _last_arrivals(run, occurrences.last_arriver[rows][judged], codes[judged])
    order = np.lexsort((keys, -total))[:BUCKET_LIMIT]
    return tuple(
        BucketStats(
            bucket=names.bucket(int(keys[code])),
            module=int(occurrences.module[sample[code]]),
            parameters=names.parameters(int(keys[code])),
            bytes=int(occurrences.bytes[sample[code]]),
            dtype=_dtype(int(occurrences.dtype[sample[code]])),
            gradient_dtype=names.dtype(int(keys[code])) or _dtype(int(occurrences.dtype[sample[code]])),
            group=names.group(int(occurrences.group[sample[code]])),
            group_size=int(occurrences.group_size[sample[code]]),
            count=int(count[code]),
            judged=int(judged_count[code]),
            incomplete=int(seen[code] - count[code]),
            first_step=int(first[code]),
            last_step=int(last[code]),
            first_steps_only=bool(last[code] <= 1 and final_step >= 3),
            cost_ms=float(total[code]),
            times=BucketTimes(**{name: times[name][code] for name in METRICS}),
            last_arrivals=arrivals.get(code, {}),
            # A trial changes the way: medians are of that which most took.
            shared_memory=bool(2 * shared_count[code] > seen[code]),
        )
        for code in order.tolist()
    )


def _pair_codes(first: UInt64, second: UInt64) -> Int64:
    """A number for each different pair, in the order of the pairs."""
    _, high = numbered(first)
    names, low = numbered(second)
    return numbered(high * len(names) + low)[1] if len(names) > 1 else high


def _dtype(number: int) -> str:
    return DTYPE_NAMES[number] if number < len(DTYPE_NAMES) else "other"


def _span(step: Int64, codes: Int64, groups: int) -> tuple[Int64, Int64]:
    """First and last step of every group."""
    first, last = np.full(groups, 2**32), np.zeros(groups, np.int64)
    np.minimum.at(first, codes, step)
    np.maximum.at(last, codes, step)
    return first, last


def _last_arrivals(run: Run, arriver: Int64, codes: Int64) -> dict[int, dict[int, int]]:
    """How often each rank was the last to arrive, by bucket."""
    known = arriver >= 0
    pairs, counts = np.unique(codes[known] * len(run.ranks) + arriver[known], return_counts=True)
    by_code: dict[int, dict[int, int]] = {}
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        code, who = divmod(pair, len(run.ranks))
        by_code.setdefault(code, {})[run.ranks[who].rank] = count
    return by_code


def group_stats(
    groups: Mapping[int, tuple[int, ...]], names: Names, buckets: Sequence[BucketStats]
) -> tuple[GroupStats, ...]:
    """Every group that reduced buckets."""
    found = []
    for key, ranks in groups.items():
        name, known = names.group(key), names.groups.get(key)
        mine = [bucket for bucket in buckets if bucket.group == name]
        lasting = lasting_buckets(mine) or mine
        shared = [bucket for bucket in lasting if bucket.shared_memory]
        summing = _summing(shared)
        found.append(
            GroupStats(
                group=name,
                ranks=ranks,
                backend=known.backend if known else "",
                shared_memory=known.shared_memory if known else "",
                buckets=len(lasting),
                shared_buckets=len(shared),
                waiting_fraction=None if summing is None else 1.0 - summing,
                summing_fraction=summing,
            )
        )
    return tuple(found)


def _summing(buckets: Sequence[BucketStats]) -> float | None:
    """Of the time in which the buckets were under way, the part with all ranks at work on them."""
    times = [(bucket.times.wire_ms.median, bucket.times.total_ms.median) for bucket in buckets]
    known = [(wire, total) for wire, total in times if wire is not None and total]
    if not known:
        return None
    return min(1.0, sum(wire for wire, _ in known) / sum(total for _, total in known))
