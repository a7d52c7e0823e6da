"""Which ranks meet in all-reduces of buckets: only those can be late for each other."""

from __future__ import annotations

from collections.abc import Iterable


def meeting(groups: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The sets of ranks that meet, directly or through others; each in ascending order, by its lowest rank.

    Args:
        groups: the ranks of each process group that reduces buckets.
    """
    found: list[set[int]] = []
    for group in groups:
        together = set(group)
        apart = []
        for other in found:
            if other & together:
                together |= other
            else:
                apart.append(other)
        found = [*apart, together] if together else apart
    return tuple(sorted(tuple(sorted(ranks)) for ranks in found))
