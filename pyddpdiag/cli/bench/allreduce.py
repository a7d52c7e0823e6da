"""`pyddpdiag bench allreduce`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pyddpdiag.cli._options import Force
from pyddpdiag.cli.bench import options


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
    interface: options.Interface = None,
    rounds: options.Rounds = None,
    sittings: options.Sittings = 5,
    budget: options.Budget = None,
    output: options.Output = None,
    force: Force = False,
    resume: options.Resume = False,
    timeout: options.Timeout = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Time Gloo's all-reduce by size, with the bandwidth it reaches (algbw and busbw: pyddpdiag help metrics)."""
    started = time.time()
    from pyddpdiag.bench.cases import allreduce_cases
    from pyddpdiag.bench.engine.plan import SweepPlan
    from pyddpdiag.bench.engine.result_writer import ResultWriter
    from pyddpdiag.cli.bench import running

    names, picks = options.interfaces(interface)
    cases = allreduce_cases(
        options.sizes(size), options.whole_numbers(ranks, "--nproc"), picks, chunks=in_flight
    )
    most, limit = options.limits(rounds, budget, started)
    plan = SweepPlan(
        cases=tuple(cases),
        names=names,
        rounds=most,
        launches=sittings,
        budget=limit,
        timeout_s=timeout,
    )
    writer = ResultWriter(options.output_path(output, resume), force, resume)
    outcome = running.run(plan, writer)
    running.show(outcome, as_json)
    running.finish(outcome)
