"""`pyddpdiag try COMMAND`: measure, with the user's own training, what each cure is worth."""

from __future__ import annotations

import math
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from pyddpdiag.cli._options import TheirCommand, option, ranks_of, with_options
from pyddpdiag.output import say


class Keep(str, Enum):
    """With what the training goes on, or starts in the end."""

    BEST = "best"
    NONE = "none"


_OPTIONS = (
    option(
        "cures",
        str,
        "What to try, A+B for both at once (pyddpdiag help cures); by default shared-memory and buckets, where they "
        "keep the bits of the training; with --restart interface, threads and pin-ranks.",
        "",
        metavar="NAME[=VALUE],...",
    ),
    option("minutes", float, "For the trial, at most: 5 by default, 10 with --restart."),
    option(
        "keep",
        Keep,
        "Go on with the best cure (the default), or with none. With --restart: then start the whole training that way; "
        "by default it is not started.",
    ),
    option("stop", bool, "End the training when the trial is over."),
    option(
        "restart",
        bool,
        "Start the command again and again, a short time for each cure. What the script writes, it writes each time.",
    ),
    option("trace", Path, "Folder of the traces; a new ddptrace-<time> by default.", metavar="DIR"),
    option("html", Path, "Also write the page of the run, with the trial.", metavar="FILE"),
    option("force", bool, "Replace existing files."),
    *ranks_of("Start this many ranks of a script on this machine: pyddpdiag try --nproc 2 train.py"),
    option("json", Path, "Also write the result as JSON.", metavar="FILE", hidden=True),
)


@with_options(_OPTIONS)
def try_(command: TheirCommand, **given: Any) -> None:
    """Try cures on your own training command, and say what each is worth; the script is not changed.

    Cures take turns with the script's own setting in the running training, and the best one is kept. With
    --restart each gets short starts of its own. The result comes on standard error.

    Exit code: the training's own if that failed; 0 there was a result; 2 there was none.
    """
    from pyddpdiag.cures.trial_candidates import wanted_of
    from pyddpdiag.cures.trial_options import Trial
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command, tried_command
    from pyddpdiag.integrations.started_ranks import start_of

    cures, keep, restart, stop = given["cures"], given["keep"], given["restart"], given["stop"]
    minutes = given["minutes"] if given["minutes"] is not None else (10.0 if restart else 5.0)
    if not (math.isfinite(minutes) and 0 < minutes <= 24 * 60):
        raise UsageError(
            f"--minutes {minutes:g} cannot be right.", hint="give minutes, such as 0.5, 2 or 10."
        )
    start = start_of(given["nproc"], given["nnodes"], given["node_rank"], given["rendezvous"])
    files = tried_command.Files(given["json"], given["html"], given["force"])
    folder = given["trace"] or recorded_command.new_folder()
    trouble = warning(command)
    names = tuple(cures.split(",")) if cures.strip() else ()
    wanted = tuple(wanted_of(name, in_run=not restart) for name in names)
    if restart and stop:
        raise UsageError(
            "--stop ends a trial in one run.", hint="with --restart no training goes on by itself."
        )
    if trouble:
        say(trouble, sys.stderr)
    if not restart:
        trial = Trial(names, minutes, keep.value if keep is not None else "best", stop)
        raise typer.Exit(tried_command.in_one_run(command, folder, trial, start=start, files=files))
    raise typer.Exit(
        tried_command.by_starts(
            command,
            folder,
            wanted,
            minutes=minutes,
            keep=keep.value if keep is not None else None,
            start=start,
            files=files,
        )
    )
