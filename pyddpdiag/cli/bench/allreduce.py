"""`pyddpdiag bench allreduce`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from pyddpdiag.cli._options import with_options
from pyddpdiag.cli.bench import options


@with_options(options.SWEEP)
def allreduce(
    size: Annotated[
        str, typer.Option(help="Sizes in bytes; K, M and G are powers of 1024.")
    ] = "1K,4K,16K,64K,256K,1M,4M,16M",
    in_flight: Annotated[
        int,
        typer.Option(min=1, max=256, help="Split each size into this many all-reduces in flight at once."),
    ] = 1,
    ranks: Annotated[
        str, typer.Option("--nproc", "--ranks", help="World sizes, launched on this machine.")
    ] = "2",
    **given: Any,
) -> None:
    """Time Gloo's all-reduce by size, with the bandwidth it reaches (algbw and busbw: pyddpdiag help metrics)."""
    started = time.time()
    from pyddpdiag.bench.cases import allreduce_cases
    from pyddpdiag.cli.bench import running

    names, picks = options.interfaces(given["interface"])
    cases = allreduce_cases(
        options.sizes(size), options.whole_numbers(ranks, "--nproc"), picks, chunks=in_flight
    )
    running.sweep(cases, names, given, started)
