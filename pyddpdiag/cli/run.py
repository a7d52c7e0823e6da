"""`pyddpdiag run COMMAND`: record a training script that was not changed, and apply cures to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from pyddpdiag.cli._options import TheirCommand, cures_given, cures_table, option, ranks_of, with_options
from pyddpdiag.output import say

# A panel of --help.
_CURES = "Cures, applied to every DDP module and rank"
_SHOWN = ("shared_memory", "compress", "bucket_cap_mb", "interface", "threads", "pin_ranks", "num_workers")

_OPTIONS = (
    option(
        "trace",
        str,
        "Folder of the traces, or a URL such as s3://bucket/run, where they are brought; a new ddptrace-<time> by "
        "default.",
        metavar="DIR_OR_URL",
    ),
    *ranks_of("Start this many ranks of a script on this machine: pyddpdiag run --nproc 2 train.py"),
    option("gather", bool, "At the end, send each machine's traces to that of rank 0."),
    option(
        "gather_port",
        int,
        "With --gather: where rank 0's machine listens; default: the ranks' port + 1.",
        min=1,
        max=65535,
        hidden=True,
    ),
    option(
        "sync_every",
        float,
        "With a URL: bring what is new every so often while the training runs; 0: only at its end.",
        0.0,
        min=0,
        max=86400,
        metavar="SECONDS",
        hidden=True,
    ),
    option(
        "lines",
        bool,
        "Look at the ranks' Python stacks, to name the line of a late rank.",
        True,
        "--lines/--no-lines",
        hidden=True,
    ),
    *cures_table(_CURES, _SHOWN),
)


@with_options(_OPTIONS)
def run(command: TheirCommand, **given: Any) -> None:
    """Run a training command and record every DistributedDataParallel module in it; the script is not changed.

    The verdict comes at the end, on standard error. The exit code is that of the command.
    """
    from pyddpdiag.cures.options import Cures
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command, tasks
    from pyddpdiag.integrations.bringing import Bringing, gather_of, local_folder
    from pyddpdiag.integrations.started_ranks import start_of
    from pyddpdiag.remote.place import is_url

    trace, gather, gather_port = given["trace"], given["gather"], given["gather_port"]
    start = start_of(given["nproc"], given["nnodes"], given["node_rank"], given["rendezvous"])
    cures = Cures(**cures_given(given))
    trouble = warning(command)
    if trouble:
        say(trouble, sys.stderr)
    bringing = None
    if trace is not None and is_url(trace):
        folder = local_folder(trace)
        bringing = Bringing(trace, folder, given["sync_every"])
    else:
        if given["sync_every"]:
            raise UsageError("--sync-every needs a URL.", hint="as --trace s3://bucket/run")
        folder = Path(trace) if trace is not None else recorded_command.new_folder()
    if gather_port is not None and not gather:
        raise UsageError("--gather-port needs --gather.")
    if gather and bringing is not None:
        raise UsageError("a URL and --gather do the same.", hint="give one of them.")
    who = gather_of(start, tasks.here(), gather_port) if gather else None
    raise typer.Exit(
        recorded_command.run(
            command, folder, cures, lines=given["lines"], start=start, bringing=bringing, gather=who
        )
    )
