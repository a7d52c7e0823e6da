"""The verdict of a mesh check on a screen."""

from __future__ import annotations

from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.doctor.mesh.verdict import Verdict
from pyddpdiag.model.words import count
from pyddpdiag.output import clean
from pyddpdiag.report.screen import INDENT, screen_for
from pyddpdiag.report.tables import Cell, Table

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
