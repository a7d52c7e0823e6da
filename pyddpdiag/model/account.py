"""Where the whole life of a rank's process went, from its start to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final


@dataclass(frozen=True)
class RankAccount:
    """One rank's life in seconds; docs/metrics.md defines the parts, which add up to `wall_s`.

    `phases` splits `phases_s` by name.
    """

    rank: int
    wall_s: float
    imports_s: float = 0.0
    rendezvous_s: float = 0.0
    construction_s: float = 0.0
    set_up_s: float = 0.0
    first_steps_s: float = 0.0
    compute_s: float = 0.0
    blocked_s: float = 0.0
    core_wait_s: float = 0.0
    data_wait_s: float = 0.0
    communication_s: float = 0.0
    rank_wait_s: float = 0.0
    collectives_s: float = 0.0
    phases_s: float = 0.0
    collectives_between_s: float = 0.0
    between_steps_s: float = 0.0
    between_epochs_s: float = 0.0
    tail_s: float = 0.0
    unknown_s: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)

    def part(self, name: str) -> float:
        """The seconds of one of `PARTS`."""
        return float(getattr(self, name))


PARTS: Final = tuple(
    each.name for each in fields(RankAccount) if each.name not in ("rank", "wall_s", "phases")
)
"""All parts in the order of a life; together they are its wall time."""

START_UP: Final = PARTS[:4]
