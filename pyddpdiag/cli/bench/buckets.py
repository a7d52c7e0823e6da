"""`pyddpdiag bench buckets`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from pyddpdiag.cli._options import with_options
from pyddpdiag.cli.bench import options
from pyddpdiag.workloads.archs import ARCHS


@with_options(options.SWEEP)
def buckets(
    model: Annotated[
        str,
        typer.Option(
            "--arch",
            "--model",
            help=f"The networks; those of `train`, and some to measure only: {', '.join(ARCHS)}.",
        ),
    ] = "digits-cnn",
    hook: Annotated[
        str,
        typer.Option(
            help="Hooks, as in `train`: plain, builtin, native, timed; torch_bf16; noop, which averages nothing and so "
            "shows what the rest of a step takes. The first is measured first."
        ),
    ] = "plain,native",
    compress: Annotated[
        str, typer.Option(help="none, bf16, fp16: of the hooks that record, each of these.")
    ] = "none",
    error_feedback: Annotated[
        bool, typer.Option("--error-feedback", help="With --compress: error feedback where it compresses.")
    ] = False,
    shared_memory: Annotated[
        str, typer.Option(help="off, auto, require: of the hooks that record, each of these.")
    ] = "off",
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="off|NAME,NAME[,...]",
            help="Of the hooks that record: off, or several interfaces at once for each bucket; repeat to vary it.",
        ),
    ] = None,
    bucket_cap_mb: Annotated[
        str, typer.Option(help="Bucket sizes in MiB; 'default' is DDP's own (25, and 1 for the first).")
    ] = "default,0.25,1,5,100",
    ranks: Annotated[
        str, typer.Option("--nproc", "--ranks", help="World sizes, launched on this machine.")
    ] = "1,2,4",
    **given: Any,
) -> None:
    """Time DDP's training step for bucket sizes, world sizes, hooks and models, and show where the time goes."""
    started = time.time()
    from pyddpdiag.bench.cases import hooks_of, step_cases
    from pyddpdiag.cli._options import lanes_of
    from pyddpdiag.cli.bench import running

    names, picks = options.interfaces(given["interface"])
    cases = step_cases(
        options.words(model),
        hooks_of(
            options.words(hook),
            options.words(compress),
            error_feedback,
            options.words(shared_memory),
            [lanes_of(None if each == "off" else each) for each in lanes or ["off"]],
        ),
        options.caps(bucket_cap_mb),
        options.whole_numbers(ranks, "--nproc"),
        picks,
    )
    running.sweep(cases, names, given, started)
