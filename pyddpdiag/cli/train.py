"""`pyddpdiag train`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pyddpdiag import train as training
from pyddpdiag.errors import PyddpdiagError, RankFailedError, UsageError
from pyddpdiag.train import interfaces, rendezvous
from pyddpdiag.train.display import Display
from pyddpdiag.train.settings import HookKind, TrainSettings
from pyddpdiag.train.summary import summary

_DEFAULTS = TrainSettings()


def train(
    nproc: Annotated[int | None, typer.Option(help="Ranks to launch on this machine.  [default: 2]")] = None,
    dist_url: Annotated[
        str | None,
        typer.Option(help="Join ranks that are started elsewhere: file://PATH, tcp://host:port or env://."),
    ] = None,
    world_size: Annotated[int | None, typer.Option(help="With --dist-url: how many ranks there are.")] = None,
    rank: Annotated[int | None, typer.Option(help="With --dist-url: which of them this one is.")] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="Network interfaces for Gloo (GLOO_SOCKET_IFNAME)."),
    ] = None,
    bucket_cap_mb: Annotated[
        float, typer.Option(help="DDP's bucket size in MiB; the default makes 5 buckets of this small model.")
    ] = _DEFAULTS.bucket_cap_mb,
    hook: Annotated[
        HookKind,
        typer.Option(
            help="native, timed: record (recorder.attach, timed_allreduce); plain: no hook; builtin: torch's."
        ),
    ] = _DEFAULTS.hook,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = _DEFAULTS.epochs,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples per step of all ranks together; split evenly, the first ranks take the rest."
        ),
    ] = _DEFAULTS.batch_size,
    seed: Annotated[int, typer.Option(help="Decides the first weights and the order.")] = _DEFAULTS.seed,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = _DEFAULTS.lr,
    trace: Annotated[Path | None, typer.Option(help="Folder of the trace.  [default: runs/<time>]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a trace that is there already.")] = False,
    timeout: Annotated[
        float,
        typer.Option(help="Longest wait for other ranks, at the start and in each collective, in seconds."),
    ] = _DEFAULTS.timeout_s,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON and nothing else.")
    ] = False,
) -> None:
    """Train a small network on handwritten digits with DDP over Gloo, and record where the time goes."""
    settings = TrainSettings(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        bucket_cap_mb=bucket_cap_mb,
        hook=hook,
        trace=str(trace) if trace is not None else None,
        force=force,
        interfaces=interfaces.parse(interface) if interface is not None else (),
        timeout_s=timeout,
    )
    place = _place(nproc, dist_url, world_size, rank)
    if place is None:
        _launch(settings, 2 if nproc is None else nproc, as_json)
    else:
        _join(settings, place, as_json)


def _place(
    nproc: int | None, dist_url: str | None, world_size: int | None, rank: int | None
) -> rendezvous.Place | None:
    """Where to join, or None to launch. Raises `UsageError` if the options ask for both."""
    if dist_url is not None:
        if nproc is not None:
            raise UsageError("--nproc launches ranks and --dist-url joins some.", hint="give one of the two.")
        return rendezvous.join_url(dist_url, world_size, rank)
    if world_size is not None or rank is not None:
        raise UsageError(
            "--world-size and --rank need --dist-url.", hint="use --nproc N to launch N ranks here."
        )
    if not rendezvous.under_torchrun():
        return None
    if nproc is not None:
        raise UsageError(
            "--nproc was given, but RANK and WORLD_SIZE are set: this process is a rank already.",
            hint="leave --nproc out under torchrun, or unset these variables to launch ranks here.",
        )
    return rendezvous.join_environment()


def _launch(settings: TrainSettings, nproc: int, as_json: bool) -> None:
    try:
        with Display() as display:
            result = training.launch(settings, nproc, on_event=display, on_note=display.note)
    except RankFailedError as error:
        _show_details(error)
        raise
    except KeyboardInterrupt:
        print("Interrupted: all ranks have been ended.", file=sys.stderr)
        raise typer.Exit(130) from None
    _show(result, as_json)


def _join(settings: TrainSettings, place: rendezvous.Place, as_json: bool) -> None:
    try:
        with Display() as display:
            watch = display if place.rank == 0 else _show_nothing
            result = training.join(settings, place, on_event=watch)
    except PyddpdiagError as error:
        if isinstance(error, RankFailedError):
            _show_details(error)
        print(f"error: {error}", file=sys.stderr)
        _leave(2)
    if place.rank == 0:
        _show(result, as_json)


def _show_nothing(event: object) -> None:
    del event


def _show_details(error: RankFailedError) -> None:
    if error.details:
        print(error.details, file=sys.stderr)


def _show(result: training.TrainResult, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary(result), indent=2))
        return
    print(
        f"Test accuracy {result.accuracy:.2%} after {len(result.history)} epochs in {result.seconds:.1f} s, "
        f"{result.world_size} ranks, {result.buckets} buckets, hook {result.hook}."
    )
    if result.trace is None:
        print("This hook records nothing, so there is no report; --hook native does.")
        return
    sys.stdout.flush()
    from pyddpdiag.pipeline import print_report

    print_report(Path(result.trace))


def _leave(code: int) -> NoReturn:
    """Ends a rank that failed, at once: a normal exit would wait for Gloo's threads, and they for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
