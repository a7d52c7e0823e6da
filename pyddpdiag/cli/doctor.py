"""`pyddpdiag doctor`: whether this machine, or all of them together, can form a Gloo group; and what an error means."""

from __future__ import annotations

from typing import Annotated

import typer

_RANKS = "Ranks"


def doctor(
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Explain the errors in this log instead; - reads standard input. Repeatable."
        ),
    ] = None,
    more_logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="More logs, one per rank, for --log rank_*.log."),
    ] = None,
    mesh: Annotated[
        bool,
        typer.Option("--mesh", help="Try every pair of ranks, then a real Gloo group. Run it on every rank."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (pyddpdiag help doctor) instead of text.")
    ] = False,
    rendezvous: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the ranks meet: file:///PATH, tcp://host:port or env://.",
            rich_help_panel=_RANKS,
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Of this process.", rich_help_panel=_RANKS)] = None,
    world_size: Annotated[
        int | None, typer.Option(min=1, help="Ranks on all machines.", rich_help_panel=_RANKS)
    ] = None,
    local_world_size: Annotated[
        int | None, typer.Option(min=1, help="Ranks on this machine.", rich_help_panel=_RANKS)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Batch size per rank, for a note about the learning rate.", rich_help_panel=_RANKS
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=5, max=600, help="With --mesh: longest time for everything, in seconds.")
    ] = 60.0,
    shell: Annotated[
        str | None, typer.Option(help="Write lines to paste for posix, powershell or cmd.", metavar="SHELL")
    ] = None,
) -> None:
    """Say before a run whether it can start, and after an error what it means, with the lines to paste.

    Exit code: 0 nothing to mend, 1 found something, 2 cannot tell.
    """
    from pyddpdiag.doctor import main

    if log or more_logs:
        raise typer.Exit(main.explain_logs([*(log or []), *(more_logs or [])], shell, as_json=json))
    asked = main.Asked(rendezvous, rank, world_size, local_world_size, batch_size, shell)
    if mesh:
        raise typer.Exit(main.check_mesh(asked, timeout, as_json=json))
    raise typer.Exit(main.check_machine(asked, as_json=json))
