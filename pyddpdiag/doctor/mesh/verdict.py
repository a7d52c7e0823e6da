"""What a mesh check found: plain data, sent to every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Trouble:
    """One thing to mend.

    Attributes:
        kind: missing, world_size, system, version, variable, interfaces, refused, filtered, unroutable, mtu hole,
            one-way, slow, loopback, stranger, failed or group.
        ranks: those it is about.
        text: what was found.
        fix: what to do.
        lines: per rank, the lines to paste there.
        warning: the job may work nevertheless.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str
    fix: str
    lines: Mapping[int, tuple[str, ...]]
    warning: bool = False


@dataclass(frozen=True)
class Verdict:
    """The whole answer.

    Attributes:
        world_size: as rank 0 was started.
        ranks: those that came.
        cells: the matrix: from, to, state, round trip in ms, Mbit/s, for the address that Gloo takes.
        troubles: the worst first.
        group: "formed", "failed" or "not tried".
        group_seconds: how long the slowest rank took to form it.
    """

    world_size: int
    ranks: tuple[int, ...]
    cells: tuple[tuple[int, int, str, float | None, float | None], ...]
    troubles: tuple[Trouble, ...]
    group: str
    group_seconds: float

    @property
    def exit_code(self) -> int:
        """1 if there is something to mend."""
        return 1 if self.troubles else 0

    def to_fields(self) -> dict[str, Any]:
        """For a message and for JSON."""
        fields = asdict(self)
        for trouble in fields["troubles"]:
            trouble["lines"] = {str(rank): list(lines) for rank, lines in trouble["lines"].items()}
        return {**fields, "exit_code": self.exit_code}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Verdict:
        """The inverse of `to_fields`, for what rank 0 sent."""
        troubles = tuple(
            Trouble(
                t["kind"],
                tuple(t["ranks"]),
                t["text"],
                t["fix"],
                {int(rank): tuple(lines) for rank, lines in t["lines"].items()},
                t["warning"],
            )
            for t in fields["troubles"]
        )
        return cls(
            fields["world_size"],
            tuple(fields["ranks"]),
            tuple((c[0], c[1], c[2], c[3], c[4]) for c in fields["cells"]),
            troubles,
            fields["group"],
            fields["group_seconds"],
        )
