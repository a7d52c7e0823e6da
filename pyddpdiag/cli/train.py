"""`pyddpdiag train`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn, cast, get_args

import typer

from pyddpdiag import train as training
from pyddpdiag.errors import PyddpdiagError, RankFailedError, UsageError
from pyddpdiag.model import RunReport
from pyddpdiag.train import interfaces, rendezvous
from pyddpdiag.train.archs import ARCHS, arch_of
from pyddpdiag.train.display import Display
from pyddpdiag.train.gpu_use import explain
from pyddpdiag.train.nodes import Node
from pyddpdiag.train.settings import Device, HookKind, TrainSettings
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
    arch: Annotated[str, typer.Option(help=f"The network: {', '.join(ARCHS)}.")] = _DEFAULTS.arch,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Images in DATA/train/<class>/ (and DATA/val), or a text file for the transformer."
        ),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:FUNCTION]", help="Run a training function of your own; default: train()."
        ),
    ] = None,
    dist_backend: Annotated[str, typer.Option(help="Only gloo.")] = "gloo",
    multiprocessing_distributed: Annotated[
        bool,
        typer.Option(
            "--multiprocessing-distributed",
            help="Launch --nproc ranks here (default: one per GPU, else 2); --world-size and --rank count machines.",
        ),
    ] = False,
    device: Annotated[
        str, typer.Option(help="auto (a GPU per rank if there are enough), cpu or cuda.")
    ] = "auto",
    bucket_cap_mb: Annotated[
        float | None,
        typer.Option(help="DDP's bucket size in MiB.  [default: 0.25; transformer 1; resnet 25]"),
    ] = None,
    hook: Annotated[
        HookKind,
        typer.Option(
            help="native, timed: record (recorder.attach, timed_allreduce); bf16, fp16, timed_bf16, "
            "timed_fp16: the same, in 16 bits; bf16_feedback: with error feedback; plain: no hook; builtin: torch's."
        ),
    ] = _DEFAULTS.hook,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = _DEFAULTS.epochs,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples per step of all ranks together; split evenly, the first ranks take the rest."
        ),
    ] = _DEFAULTS.batch_size,
    scale_lr: Annotated[
        bool,
        typer.Option("--scale-lr", help="--batch-size is of each rank, and --lr is multiplied by the ranks."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the first weights and the order.")] = _DEFAULTS.seed,
    lr: Annotated[
        float | None,
        typer.Option(help="Peak learning rate.  [default: 0.03; resnet 0.05; transformer 0.003]"),
    ] = None,
    image_size: Annotated[int, typer.Option(help="Images are cut to this square.")] = _DEFAULTS.image_size,
    workers: Annotated[int, typer.Option(help="Threads per rank that read ahead.")] = _DEFAULTS.workers,
    amp: Annotated[bool, typer.Option("--amp", help="Forward and backward in bfloat16 (autocast).")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="File to write after each epoch.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Checkpoint to go on from.")] = None,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Only test what --resume holds.")] = False,
    scaling: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Train with each number of ranks and compare (1 = no DDP)."),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(help="With --scaling: folder of the results.  [default: runs/scaling-<time>]"),
    ] = None,
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
    """Train with DDP over Gloo, and record where the time goes: by default, a small network on handwritten digits."""
    if dist_backend != "gloo":
        raise UsageError(
            f"--dist-backend is {dist_backend}, but pyddpdiag trains and times over gloo only.",
            hint="leave it out; over Gloo a GPU's gradients go through the CPU.",
        )
    if device not in get_args(Device):
        raise UsageError(f"--device is {device}.", hint=f"choose among: {', '.join(get_args(Device))}.")
    if evaluate and trace is None:
        hook = HookKind.PLAIN  # nothing is trained, so there is nothing to record
    usual = arch_of(arch)
    settings = TrainSettings(
        epochs=epochs,
        batch_size=batch_size,
        lr=usual.lr if lr is None else lr,
        seed=seed,
        bucket_cap_mb=usual.bucket_cap_mb if bucket_cap_mb is None else bucket_cap_mb,
        hook=hook,
        trace=_text(trace),
        force=force,
        interfaces=interfaces.parse(interface) if interface is not None else (),
        timeout_s=timeout,
        arch=arch,
        data=_text(data),
        script=script,
        image_size=image_size,
        workers=workers,
        scale_lr=scale_lr,
        checkpoint=_text(checkpoint),
        resume=_text(resume),
        evaluate=evaluate,
        amp=amp,
        device=cast(Device, device),
    )
    if multiprocessing_distributed:
        count = nproc or _gpus() or 2
        place = _place(None, dist_url, world_size, rank)
        _launch(settings, count, as_json, Node(place, count) if place is not None else None)
        return
    place = _place(nproc, dist_url, world_size, rank)
    if scaling is not None:
        _scale(settings, scaling, output_dir, place is not None or nproc is not None, as_json)
    elif place is None:
        _launch(settings, 2 if nproc is None else nproc, as_json)
    else:
        _join(settings, place, as_json)


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _scale(
    settings: TrainSettings, text: str, output_dir: Path | None, elsewhere: bool, as_json: bool
) -> None:
    from pyddpdiag.scaling import run

    if elsewhere:
        raise UsageError("--scaling launches its ranks itself.", hint="leave --nproc and --dist-url out.")
    try:
        with Display() as display:
            print(run(settings, text, output_dir, display, as_json=as_json), end="")
    except RankFailedError as error:
        _show_details(error)
        raise
    except KeyboardInterrupt:
        print("Interrupted: all ranks have been ended.", file=sys.stderr)
        raise typer.Exit(130) from None


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


def _launch(settings: TrainSettings, nproc: int, as_json: bool, node: Node | None = None) -> None:
    try:
        with Display() as display:
            result = training.launch(settings, nproc, on_event=display, on_note=display.note, node=node)
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
    report = _to_explain(result)
    if as_json:
        print(json.dumps(summary(result, report), indent=2))
        return
    accuracy = f"Test accuracy {result.accuracy:.2%}" if result.history else "Done"
    print(
        f"{accuracy} after {len(result.history)} epochs in {result.seconds:.1f} s, "
        f"{result.world_size} ranks, {result.buckets} buckets, hook {result.hook}."
    )
    for use in result.gpus:
        reason = explain(use, report)
        print(use if reason is None else f"{use} {reason}")
    if result.trace is None:
        print("Nothing was recorded, so there is no report; --hook native records training.")
        return
    sys.stdout.flush()
    from pyddpdiag.pipeline import print_report

    print_report(Path(result.trace))


def _to_explain(result: training.TrainResult) -> RunReport | None:
    """The report of the trace if some GPU was used little; None also if it cannot be read: that ends no training."""
    if result.trace is None or not any(use.low for use in result.gpus):
        return None
    from pyddpdiag.pipeline import load_report

    try:
        return load_report(Path(result.trace))
    except PyddpdiagError:
        return None


def _leave(code: int) -> NoReturn:
    """Ends a rank that failed, at once: a normal exit would wait for Gloo's threads, and they for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
