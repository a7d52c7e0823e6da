"""`pyddpdiag bench buckets`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pyddpdiag.cli.bench import options


def buckets(
    model: Annotated[
        str,
        typer.Option(
            help="digits, mlp (all communication), mlp_small, resnet50, resnet_small, bert_base, bert_small."
        ),
    ] = "digits",
    hook: Annotated[
        str,
        typer.Option(
            help="plain, builtin, native, timed, torch_bf16, timed_bf16, native_bf16; the first is measured first."
        ),
    ] = "plain,native",
    bucket_cap_mb: Annotated[
        str, typer.Option(help="Bucket sizes in MiB; 'default' is DDP's own (25, and 1 for the first).")
    ] = "default,0.25,1,5,100",
    ranks: Annotated[str, typer.Option(help="World sizes.")] = "1,2,4",
    interface: options.Interface = None,
    rounds: options.Rounds = 30,
    sittings: options.Sittings = 5,
    budget: options.Budget = None,
    output: options.Output = None,
    force: options.Force = False,
    resume: options.Resume = False,
    timeout: options.Timeout = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Time DDP's training step over bucket sizes, world sizes, hooks and models, and say where the time goes."""
    started = time.time()
    from pyddpdiag.bench.cases import step_cases
    from pyddpdiag.bench.engine.settings import SweepSettings
    from pyddpdiag.bench.engine.sweep import Keeper
    from pyddpdiag.cli.bench import running

    names, picks = options.interfaces(interface)
    cases = step_cases(
        options.words(model),
        options.words(hook),
        options.caps(bucket_cap_mb),
        options.whole_numbers(ranks, "--ranks"),
        picks,
    )
    settings = SweepSettings(
        cases=tuple(cases),
        names=names,
        rounds=rounds,
        sittings=sittings,
        budget_s=options.seconds(budget),
        started=started,
        timeout_s=timeout,
        trace_folder="set when it starts",
    )
    keeper = Keeper(options.output_path(output, resume), force, resume)
    outcome = running.run(settings, keeper)
    running.show(outcome, as_json)
    running.finish(outcome)
