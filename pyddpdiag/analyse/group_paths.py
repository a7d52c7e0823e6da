"""Which way the buckets of each process group took, and where the time in shared memory went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.wire_fit import lasting_buckets
from pyddpdiag.model.rows import BucketStats, GroupStats


def group_stats(
    groups: Mapping[int, tuple[int, ...]], names: Names, buckets: Sequence[BucketStats]
) -> tuple[GroupStats, ...]:
    """Every group that reduced buckets.

    Args:
        groups: the ranks of each, by its id.
        names: what the sidecars say of groups.
        buckets: of all groups.
    """
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
