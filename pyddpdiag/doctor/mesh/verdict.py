"""What a mesh check found: plain data, sent to every rank; and how a screen shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, TextIO

from rich.text import Text

from pyddpdiag.model.fields import Limit
from pyddpdiag.model.words import count
from pyddpdiag.output import clean
from pyddpdiag.report.screen import INDENT, screen_for
from pyddpdiag.report.tables import Cell, Table

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


SCHEMA_VERSION: Final = 1
_MOST_COLUMNS = 8


def print_verdict(verdict: Verdict, file: TextIO) -> None:
    """Print the matrix, each trouble with its lines per rank, and whether a real group was formed."""
    screen = screen_for(file)
    came = f"{len(verdict.ranks)} of {count(verdict.world_size, 'rank')} came"
    group = {"formed": f"a real Gloo group was formed in {verdict.group_seconds:.1f} s"}.get(
        verdict.group, f"a real Gloo group: {verdict.group}"
    )
    good = not verdict.troubles
    screen.print(Text(f"{came}; {group}.", "bold green" if good else "bold red"), INDENT)
    if verdict.cells and len(verdict.ranks) <= _MOST_COLUMNS:
        screen.table(_matrix(verdict))
    for trouble in verdict.troubles:
        screen.console.print()
        style = "bold yellow" if trouble.warning else "bold red"
        screen.print(Text(f"{trouble.kind}: {clean(trouble.text)}", style), INDENT)
        screen.print(Text(trouble.fix), INDENT)
        for rank, lines in sorted(trouble.lines.items()):
            for line in lines:
                text = f"{' ' * (2 * INDENT)}rank {rank}:  {screen.text(clean(line))}"
                screen.console.print(Text(text), soft_wrap=True)


def _matrix(verdict: Verdict) -> Table:
    cell = {(a, b): (what, rtt, mbit) for a, b, what, rtt, mbit in verdict.cells}
    columns: dict[str, list[Cell]] = {"from": [f"rank {rank}" for rank in verdict.ranks]}
    for peer in verdict.ranks:
        columns[f"to rank {peer}"] = [_cell(cell.get((rank, peer))) for rank in verdict.ranks]
    return Table("Pairs, at the address that Gloo takes (round trip, rate)", columns, len(columns))


def _cell(found: tuple[str, float | None, float | None] | None) -> Cell:
    if found is None:
        return "-"
    what, rtt, mbit = found
    if what != "ok":
        return Text(what, "bold red" if what != "not tried" else "dim")
    return f"{rtt or 0:.2f} ms, {mbit or 0:.0f} Mbit/s"
