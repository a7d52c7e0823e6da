"""What a mesh check found: plain data, sent to every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from pyddpdiag.model.fields import Limit

_MOST: Final = 2**24
_Text = Annotated[str, Limit(2**16)]
_Ranks = Annotated[tuple[int, ...], Limit(_MOST)]


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
    ranks: _Ranks
    text: _Text
    fix: _Text
    lines: Annotated[Mapping[int, tuple[_Text, ...]], Limit(_MOST)] = field(default_factory=dict)
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
    ranks: _Ranks
    cells: Annotated[tuple[tuple[int, int, str, float | None, float | None], ...], Limit(_MOST)]
    troubles: Annotated[tuple[Trouble, ...], Limit(_MOST)]
    group: str
    group_seconds: float

    @property
    def exit_code(self) -> int:
        """1 if there is something to mend."""
        return 1 if self.troubles else 0

    def to_fields(self) -> dict[str, Any]:
        """For a message and for JSON."""
        return {**asdict(self), "exit_code": self.exit_code}
