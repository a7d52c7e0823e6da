"""`pyddpdiag hang DIR`: who holds up a run that is stuck now, or died."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def hang(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the traces of all ranks.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/hang.md) instead of text.")] = False,
    stacks: Annotated[
        bool, typer.Option(help="Show the stacks of the ranks in question, by py-spy where it is installed.")
    ] = True,
    timeout: Annotated[
        float, typer.Option(min=0.5, max=600, help="Longest time for the whole answer, in seconds.")
    ] = 4.0,
) -> None:
    """Say which rank holds up a run that is stuck now, or died: in which operation, since when, and in what state.

    Looks from outside, ends nothing and waits for nobody. Exit code: 0 it moves or ended normally, 1 found,
    2 cannot tell.
    """
    import sys

    from pyddpdiag.live.answer import hang_to_json, print_hang
    from pyddpdiag.live.hang import hang as look_for_hang
    from pyddpdiag.output import say

    found = look_for_hang(folder, stacks=stacks, limit_s=timeout)
    if json:
        say(hang_to_json(found))
    else:
        print_hang(found, sys.stdout)
    raise typer.Exit(found.exit_code)
