"""`pyddpdiag hang DIR`: who holds up a run that is stuck now, or died."""

from __future__ import annotations

from typing import Annotated

import typer

from pyddpdiag.cli._options import Folder


def hang(
    folder: Folder,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (pyddpdiag help hang) instead of text.")
    ] = False,
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
    from pyddpdiag.remote.copy import copied_while

    with copied_while(folder, 0.5) as traces:
        between = traces.every_s
        if between:
            # The next pieces must have come, or a run that moves would seem to stand.
            found = look_for_hang(
                traces.folder, stacks=stacks, limit_s=timeout + 6 * between, looking_s=3 * between
            )
        else:
            found = look_for_hang(traces.folder, stacks=stacks, limit_s=timeout)
        traces.require_renewed()
    if json:
        say(hang_to_json(found))
    else:
        print_hang(found, sys.stdout)
    raise typer.Exit(found.exit_code)
