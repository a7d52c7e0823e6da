"""`pyddpdiag run -- COMMAND`: record a training script that was not changed, and apply cures to it."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.output import say

# A panel of --help.
_CURES = "Applied to every DistributedDataParallel and rank of the script (docs/cures.md)"


class Shared(str, Enum):
    """Modes of shared memory that `run` applies."""

    AUTO = "auto"
    REQUIRE = "require"


class Half(str, Enum):
    """Types of 16 bits in which gradients travel."""

    BF16 = "bf16"
    FP16 = "fp16"


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
) -> None:
    """Run a training command and record every DistributedDataParallel module in it; the script is not changed.

    The verdict comes in the end, on standard error. The exit code is that of the command.
    """
    from pyddpdiag.cures.options import Cures, sizes_of
    from pyddpdiag.doctor.checks.torchrun import warning
    from pyddpdiag.errors import UsageError
    from pyddpdiag.integrations import recorded_command
    from pyddpdiag.integrations.started_ranks import Start
    from pyddpdiag.paths.lanes import parse as parse_lanes
    from pyddpdiag.ranks import interfaces

    start = None if nproc is None else Start(nproc, nnodes, node_rank, rendezvous)
    if start is not None:
        start.check()
    elif nnodes > 1 or node_rank or rendezvous:
        raise UsageError(
            "--nnodes, --node-rank and --rendezvous need --nproc.",
            hint="give --nproc, or start the ranks by torchrun.",
        )
    names = interfaces.parse(interface) if interface is not None else ()
    interfaces.check(names, "from --interface")
    if lanes is not None:
        interfaces.check(tuple(lane.interface for lane in parse_lanes(lanes.split(","))), "from --lanes")
    cures = Cures(
        shared_memory=shared_memory.value if shared_memory is not None else "off",
        compress=compress.value if compress is not None else None,
        error_feedback=error_feedback,
        lanes=() if lanes is None else tuple(lanes.split(",")),
        bucket_cap_mb=bucket_cap_mb,
        bucket_cap_mb_list=sizes_of(bucket_cap_mb_list or ""),
        gradient_as_bucket_view=gradient_as_bucket_view,
        interfaces=names,
        threads=threads,
        pin_ranks=pin_ranks,
    )
    trouble = warning(command)
    if trouble:
        say(trouble, sys.stderr)
    folder = trace if trace is not None else recorded_command.new_folder()
    raise typer.Exit(recorded_command.run(command, folder, cures, lines=lines, start=start))
