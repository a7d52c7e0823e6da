"""Which options of `pyddpdiag run` can be together, by their names: advice adds to what a run has, and never what the
command refuses. `Cures` says the same to a user; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

PATH: Final = ("--shared-memory", "--compress", "--error-feedback", "--lanes", "--connections")
"""How buckets are summed."""

_EXCLUDE: Final = (
    *((one, other) for one in ("--lanes", "--connections") for other in ("--compress", "--shared-memory")),
    ("--lanes", "--connections"),
)

# Two ways to say the same: the later one counts.
_SAME: Final = {"--bucket-cap-mb": "--bucket-cap-mb-list", "--bucket-cap-mb-list": "--bucket-cap-mb"}


def with_options(today: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str] | None:
    """The options of today with those wanted; None: one of today's excludes one that is wanted.

    `today`: names with values; "" for a flag. `wanted`: likewise.
    """
    gone = {_SAME.get(name) for name in wanted}
    found = {**{name: value for name, value in today.items() if name not in gone}, **wanted}
    return None if excluded(found) else found


def excluded(names: Collection[str]) -> bool:
    """Whether two of these exclude each other, though each of them says something else."""
    return any(one in names and other in names for one, other in _EXCLUDE)
