"""`pyddpdiag run -- COMMAND`: record a training script that was not changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.output import say


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="How you start the training, such as torchrun train.py."
        ),
    ],
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the traces; a new ddptrace-<time> by default."),
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1, help="Start so many ranks of a script on this machine: pyddpdiag run --nproc 2 -- train.py"
        ),
    ] = None,
    nnodes: Annotated[int, typer.Option(min=1, help="With --nproc: the number of machines.")] = 1,
    node_rank: Annotated[int, typer.Option(min=0, help="With --nproc: which machine this is, from 0.")] = 0,
    rendezvous: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="With --nproc: where the ranks of all machines meet.")
    ] = "",
    lines: Annotated[
        bool,
        typer.Option(
            "--lines/--no-lines", help="Look at the ranks' Python stacks, to name the line of a late rank."
        ),
    ] = True,
) -> None:
    """Run a training command and record every DistributedDataParallel module in it; the script is not changed.

    The verdict comes in the end, on standard error. The exit code is that of the command.
    """
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command
    from pyddpdiag.integrations.started_ranks import Start

    if nproc is not None:
        start = Start(nproc, nnodes, node_rank, rendezvous)
        start.check()
        command = start.command(command)
    elif nnodes > 1 or node_rank or rendezvous:
        raise UsageError(
            "--nnodes, --node-rank and --rendezvous need --nproc.",
            hint="give --nproc, or start the ranks by torchrun.",
        )
    trouble = warning(command)
    if trouble:
        say(trouble, sys.stderr)
    raise typer.Exit(
        recorded_command.run(
            command, trace if trace is not None else recorded_command.new_folder(), lines=lines
        )
    )
