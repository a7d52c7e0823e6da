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
) -> None:
    """Run a training command and record every DistributedDataParallel module in it; the script is not changed.

    The verdict comes in the end, on standard error. The exit code is that of the command.
    """
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.integrations import recorded_command

    trouble = warning(command)
    if trouble:
        say(trouble, sys.stderr)
    raise typer.Exit(
        recorded_command.run(command, trace if trace is not None else recorded_command.new_folder())
    )
