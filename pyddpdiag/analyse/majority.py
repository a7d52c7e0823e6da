"""Which ranks differ from the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping


def odd_ones(values: Mapping[int, Hashable]) -> list[int]:
    """The ranks outside a clear majority, in order; none where more than half do not agree.

    Args:
        values: what each rank has.
    """
    if not values:
        return []
    usual, count = Counter(values.values()).most_common(1)[0]
    if count * 2 <= len(values):
        return []
    return sorted(rank for rank, value in values.items() if value != usual)
