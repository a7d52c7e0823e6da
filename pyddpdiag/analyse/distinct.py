"""The different numbers of columns that are mostly in order, as steps are.

NumPy's `unique`, `setdiff1d` and `intersect1d` put whole numbers into a hash table first. Of millions of different
numbers that takes some twenty times as long as a look at their order, which is nearly always there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

Numbers = npt.NDArray[Any]
"""One column of whole numbers."""


def distinct(numbers: Numbers) -> Numbers:
    """Each different number once, in ascending order."""
    if (numbers[1:] < numbers[:-1]).any():
        # Columns of several kinds or ranks are runs in order, which a stable sort only merges.
        numbers = np.sort(numbers, kind="stable")
    kept = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=kept[1:])
    return np.asarray(numbers[kept])


def in_any(columns: Sequence[Numbers]) -> Numbers:
    """The numbers that are in any of the columns, one or more, each ascending and without repeats."""
    # The ranks of a run nearly always have the same steps.
    others = [column for column in columns[1:] if not np.array_equal(column, columns[0])]
    return distinct(np.concatenate([columns[0], *others])) if others else columns[0]


def in_all(columns: Sequence[Numbers]) -> Numbers:
    """The numbers that are in all of the columns, one or more, each ascending and without repeats."""
    found = columns[0]
    for column in columns[1:]:
        if not np.array_equal(column, found):
            found = np.intersect1d(found, column, assume_unique=True)
    return found


def joined(parts: Sequence[T]) -> T:
    """The same columns of all of these, one or more, one after the other."""
    names = [each.name for each in fields(parts[0])]  # type: ignore[arg-type]  # a dataclass of arrays
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return type(parts[0])(**columns)


def without(numbers: Numbers, others: Numbers) -> Numbers:
    """The different numbers that are not among the others, in ascending order."""
    if not len(numbers):
        return numbers
    return np.asarray(np.setdiff1d(distinct(numbers), distinct(others), assume_unique=True))


def numbered(values: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """The different values of a column that has few of them, in ascending order, and which of them each value is."""
    names = np.unique(values)
    return names, np.searchsorted(names, values).astype(np.int64, copy=False)
