"""`pyddpdiag try COMMAND`: measure, with the user's own training, what each cure is worth."""

from __future__ import annotations

import math
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.output import say


class Keep(str, Enum):
    """With what the training goes on, or starts in the end."""

    BEST = "best"
    NONE = "none"


def try_(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="How you start the training, such as torchrun train.py, with its own options.",
        ),
    ],
    cures: Annotated[
        str,
        typer.Option(
            metavar="NAME[=VALUE],...",
            help="What to try, A+B for both at once (docs/cures.md); by default shared-memory and buckets, where "
            "they keep the bits of the training; with --restart interface, threads and pin-ranks.",
        ),
    ] = "",
    minutes: Annotated[
        float | None, typer.Option(help="For the trial, at most: 2 by default, 10 with --restart.")
    ] = None,
    keep: Annotated[
        Keep | None,
        typer.Option(
            help="Go on with the best (the default), or with none, as it is. With --restart: start the whole training "
            "so in the end, which it is not by default."
        ),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the training when the trial is over.")] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start the command again and again, a short time for each cure. What the script writes, it writes "
            "each time.",
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the traces; a new ddptrace-<time> by default."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the result as JSON (docs/metrics.md).")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the page of the run, with the trial.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    nproc: Annotated[
        int | None,
        typer.Option(min=1, help="Start so many ranks of a script on this machine: --nproc 2 -- train.py"),
    ] = None,
    nnodes: Annotated[int, typer.Option(min=1, help="With --nproc: the number of machines.")] = 1,
    node_rank: Annotated[
        int | None, typer.Option(min=0, help="With --nproc: which machine this is, from 0.")
    ] = None,
    rendezvous: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="With --nproc: where the ranks of all machines meet.")
    ] = "",
) -> None:
    """Try cures on your own training command, and say what each is worth; the script is not changed.

    Cures take turns in the running training, beside its own setting, and the best is kept; with --restart each gets
    short starts of its own. The result comes on standard error. Exit code: that of the training if it failed; 0 it
    judged, with something to gain or not; 2 it could not.
    """
    from pyddpdiag.cures.options import Cures
    from pyddpdiag.cures.trial_options import Trial
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command, tried_command
    from pyddpdiag.integrations.restart_choices import wanted_of
    from pyddpdiag.integrations.started_ranks import start_of

    minutes = minutes if minutes is not None else (10.0 if restart else 2.0)
    if not (math.isfinite(minutes) and 0 < minutes <= 24 * 60):
        raise UsageError(
            f"--minutes {minutes:g} cannot be right.", hint="give minutes, such as 0.5, 2 or 10."
        )
    start = start_of(nproc, nnodes, node_rank, rendezvous)
    files = tried_command.Files(json, html, force)
    folder = trace if trace is not None else recorded_command.new_folder()
    trouble = warning(command)
    wanted = wanted_of(cures) if restart else ()
    if restart and stop:
        raise UsageError(
            "--stop ends a trial in one run.", hint="with --restart no training goes on by itself."
        )
    if trouble:
        say(trouble, sys.stderr)
    if not restart:
        names = tuple(name for name in cures.split(",") if name)
        trial = Trial(names, minutes, keep.value if keep is not None else "best", stop)
        raise typer.Exit(tried_command.in_one_run(command, folder, Cures(), trial, start=start, files=files))
    raise typer.Exit(
        tried_command.by_starts(
            command,
            folder,
            Cures(),
            wanted,
            minutes=minutes,
            keep=keep.value if keep is not None else None,
            start=start,
            files=files,
        )
    )
