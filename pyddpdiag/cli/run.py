"""`pyddpdiag run COMMAND`: record a training script that was not changed, and apply cures to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.cli._cures import Half, Shared, lanes_of
from pyddpdiag.output import say

# A panel of --help.
_CURES = "Applied to every DistributedDataParallel and rank of the script (docs/cures.md)"


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="How you start the training, such as torchrun train.py, with its own options.",
        ),
    ],
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="DIR_OR_URL",
            help="Folder of the traces, or a URL such as s3://bucket/run, where they are brought; a new "
            "ddptrace-<time> by default.",
        ),
    ] = None,
    sync_every: Annotated[
        float,
        typer.Option(
            min=0,
            max=86400,
            metavar="SECONDS",
            help="With a URL: bring what is new every so often while the training runs; 0: only in the end.",
        ),
    ] = 0,
    gather: Annotated[
        bool,
        typer.Option(
            "--gather",
            help="In the end, send each machine's traces to that of rank 0 (docs/several-machines.md).",
        ),
    ] = False,
    gather_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="With --gather: where rank 0's machine listens; default: the ranks' port + 1.",
        ),
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1, help="Start so many ranks of a script on this machine: pyddpdiag run --nproc 2 -- train.py"
        ),
    ] = None,
    nnodes: Annotated[int, typer.Option(min=1, help="With --nproc: the number of machines.")] = 1,
    node_rank: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --nproc: which machine this is, from 0; where a scheduler starts one task on each, its number.",
        ),
    ] = None,
    rendezvous: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="With --nproc: where the ranks of all machines meet.")
    ] = "",
    lines: Annotated[
        bool,
        typer.Option(
            "--lines/--no-lines", help="Look at the ranks' Python stacks, to name the line of a late rank."
        ),
    ] = True,
    shared_memory: Annotated[
        Shared | None,
        typer.Option(
            help="Average in shared memory within a host. auto: where the ranks have it; require: end with an error "
            "where they do not. On one host the same bits (float32, float64).",
            rich_help_panel=_CURES,
        ),
    ] = None,
    compress: Annotated[
        Half | None,
        typer.Option(
            help="Send gradients in 16 bits. Changes the training's bits (docs/compression.md).",
            rich_help_panel=_CURES,
        ),
    ] = None,
    error_feedback: Annotated[
        bool,
        typer.Option(
            "--error-feedback",
            help="With --compress: add what was lost to the next step's gradients.",
            rich_help_panel=_CURES,
        ),
    ] = False,
    lanes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME[,...]",
            help="Network interfaces of this host that carry parts of each bucket at once; NAME=MBIT gives a rate, "
            "else all are measured. The same bits.",
            rich_help_panel=_CURES,
        ),
    ] = None,
    bucket_cap_mb: Annotated[
        float | None,
        typer.Option(
            help="DDP's bucket size in MiB. Changes the training's last bits at 3 or more ranks.",
            rich_help_panel=_CURES,
        ),
    ] = None,
    bucket_cap_mb_list: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="A size for each bucket in MiB (torch 2.13). Changes the training's last bits at 3 or more ranks.",
            rich_help_panel=_CURES,
        ),
    ] = None,
    gradient_as_bucket_view: Annotated[
        bool,
        typer.Option(
            "--gradient-as-bucket-view",
            help="Let gradients be views of the buckets; the same bits.",
            rich_help_panel=_CURES,
        ),
    ] = False,
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Network interfaces for Gloo (GLOO_SOCKET_IFNAME).",
            rich_help_panel=_CURES,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads of torch in each rank (OMP_NUM_THREADS). May change the training's last bits.",
            rich_help_panel=_CURES,
        ),
    ] = None,
    pin_ranks: Annotated[
        bool,
        typer.Option(
            "--pin-ranks",
            help="Keep each rank to its own share of its host's cores.",
            rich_help_panel=_CURES,
        ),
    ] = False,
    num_workers: Annotated[
        int | None,
        typer.Option(
            help="Workers of every DataLoader over a map-style data set. Random numbers that they draw may change.",
            rich_help_panel=_CURES,
        ),
    ] = None,
) -> None:
    """Run a training command and record every DistributedDataParallel module in it; the script is not changed.

    The verdict comes in the end, on standard error. The exit code is that of the command.
    """
    from pyddpdiag.cures.options import Cures, sizes_of
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command, tasks
    from pyddpdiag.integrations.bringing import Bringing, gather_of, local_folder
    from pyddpdiag.integrations.started_ranks import start_of
    from pyddpdiag.ranks import interfaces
    from pyddpdiag.remote.place import is_url

    start = start_of(nproc, nnodes, node_rank, rendezvous)
    names = interfaces.parse(interface) if interface is not None else ()
    interfaces.check(names, "from --interface")
    cures = Cures(
        shared_memory=shared_memory.value if shared_memory is not None else "off",
        compress=compress.value if compress is not None else None,
        error_feedback=error_feedback,
        lanes=lanes_of(lanes),
        bucket_cap_mb=bucket_cap_mb,
        bucket_cap_mb_list=sizes_of(bucket_cap_mb_list or ""),
        gradient_as_bucket_view=gradient_as_bucket_view,
        interfaces=names,
        threads=threads,
        pin_ranks=pin_ranks,
        num_workers=num_workers,
    )
    trouble = warning(command)
    if trouble:
        say(trouble, sys.stderr)
    bringing = None
    if trace is not None and is_url(trace):
        folder = local_folder(trace)
        bringing = Bringing(trace, folder, sync_every)
    else:
        if sync_every:
            raise UsageError("--sync-every needs a URL.", hint="as --trace s3://bucket/run")
        folder = Path(trace) if trace is not None else recorded_command.new_folder()
    if gather_port is not None and not gather:
        raise UsageError("--gather-port needs --gather.")
    if gather and bringing is not None:
        raise UsageError("a URL and --gather do the same.", hint="give one of them.")
    who = gather_of(start, tasks.here(), gather_port) if gather else None
    raise typer.Exit(
        recorded_command.run(command, folder, cures, lines=lines, start=start, bringing=bringing, gather=who)
    )
