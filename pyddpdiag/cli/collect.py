"""`pyddpdiag collect DIR...`: one run's traces from several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.output import say


def collect(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Each machine's folder with traces of the run.")
    ],
    into: Annotated[Path, typer.Option(help="Where to bring them together.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files of an earlier collection.")] = False,
) -> None:
    """Bring the traces of one run together that each machine has in a folder of its own (docs/several-machines.md)."""
    from pyddpdiag.model.words import count, listed
    from pyddpdiag.trace import collect as collecting

    found = collecting.collect(folders, into, force=force)
    say(f"{count(len(found.ranks), 'trace')} of {found.world_size} ranks in {into}.")
    for folder in found.empty:
        say(f"No trace in {folder}.")
    if found.missing:
        say(f"Missing: ranks {listed(found.missing)}. The report says what that leaves open.")
    say(f"Next: pyddpdiag report {into}")
