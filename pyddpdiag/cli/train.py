"""`pyddpdiag train`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn, cast, get_args

import typer

from pyddpdiag import train as training
from pyddpdiag._loader import require_torch
from pyddpdiag.cli._cures import lanes_of
from pyddpdiag.cli._trained import show, show_details
from pyddpdiag.cures.options import Cures, sizes_of
from pyddpdiag.errors import PyddpdiagError, RankFailedError, UsageError
from pyddpdiag.output import say
from pyddpdiag.paths.averaging import HookKind, refuse_combined
from pyddpdiag.paths.options import Compress, SharedMemory
from pyddpdiag.ranks import interfaces, rendezvous
from pyddpdiag.train.display import Display
from pyddpdiag.train.settings import Device, TrainSettings
from pyddpdiag.workloads.archs import TRAINED

# Longer than 400 lines: each option of the command is some of them.
_DEFAULTS = TrainSettings()
# Panels of --help. What has none comes first: all that a newcomer needs.
_TRAINING = "Training"
_AVERAGING = "How a hook that records averages"
_CHECKPOINTS = "Checkpoints"
_ELSEWHERE = "Ranks started elsewhere, and several machines"
_NETWORK = "Network"
_FILES = "Scaling and output"


def train(
    nproc: Annotated[int | None, typer.Option(help="Ranks to launch on this machine. Default: 2.")] = None,
    arch: Annotated[str, typer.Option(help=f"The network: {', '.join(TRAINED)}.")] = _DEFAULTS.arch,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Images in DATA/train/<class>/ (and DATA/val), or a text file for the transformer."
        ),
    ] = None,
    hook: Annotated[
        str,
        typer.Option(
            help="native, timed: record (recorder.attach, a hook from Python); plain: no hook; builtin: torch's."
        ),
    ] = _DEFAULTS.hook.value,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = _DEFAULTS.epochs,
    trace: Annotated[Path | None, typer.Option(help="Folder for the trace. Default: runs/<time>.")] = None,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:FUNCTION]",
            help="Run a training function of your own; default: train().",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples per step over all ranks, split evenly; the first ranks take the rest.",
            rich_help_panel=_TRAINING,
        ),
    ] = _DEFAULTS.batch_size,
    scale_lr: Annotated[
        bool,
        typer.Option(
            "--scale-lr",
            help="Treat --batch-size as per rank, and multiply --lr by the number of ranks.",
            rich_help_panel=_TRAINING,
        ),
    ] = False,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate. Default: 0.03; resnet 0.05; transformer 0.003.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Fixes the initial weights and the order of the samples.", rich_help_panel=_TRAINING
        ),
    ] = _DEFAULTS.seed,
    bucket_cap_mb: Annotated[
        float | None,
        typer.Option(
            help="DDP's bucket size in MiB. Default: 0.25; transformer 1; resnet 25.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    bucket_cap_mb_list: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="A size for each of DDP's buckets in MiB; the last one is for all further ones. Needs torch 2.13.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    gradient_as_bucket_view: Annotated[
        bool,
        typer.Option(
            "--gradient-as-bucket-view",
            help="Gradients are views of DDP's buckets, and are not copied.",
            rich_help_panel=_TRAINING,
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="torch's threads in each rank. Default: the machine's cores, shared by its ranks.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    pin_ranks: Annotated[
        bool,
        typer.Option(
            "--pin-ranks",
            help="Keep each rank to an equal share of its host's cores.",
            rich_help_panel=_TRAINING,
        ),
    ] = False,
    image_size: Annotated[
        int, typer.Option(help="Crop images to this many pixels on each side.", rich_help_panel=_TRAINING)
    ] = _DEFAULTS.image_size,
    workers: Annotated[
        int, typer.Option(help="Threads per rank that load samples ahead.", rich_help_panel=_TRAINING)
    ] = _DEFAULTS.workers,
    compress: Annotated[
        str | None,
        typer.Option(
            metavar="bf16|fp16",
            help="Send gradients in 16 bits (docs/compression.md).",
            rich_help_panel=_AVERAGING,
        ),
    ] = None,
    error_feedback: Annotated[
        bool,
        typer.Option(
            "--error-feedback",
            help="With --compress: add what was lost to the next step's gradients.",
            rich_help_panel=_AVERAGING,
        ),
    ] = False,
    shared_memory: Annotated[
        str,
        typer.Option(
            metavar="off|auto|require",
            help="Average in shared memory within a host (docs/shared-memory.md).",
            rich_help_panel=_AVERAGING,
        ),
    ] = "off",
    lanes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME[,...]",
            help="Send each bucket in parts over several interfaces at once (docs/lanes.md).",
            rich_help_panel=_AVERAGING,
        ),
    ] = None,
    amp: Annotated[
        bool,
        typer.Option("--amp", help="Forward and backward in bfloat16 (autocast).", rich_help_panel=_TRAINING),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU per rank if there are enough), cpu or cuda.", rich_help_panel=_TRAINING
        ),
    ] = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Write a checkpoint to this file after each epoch.", rich_help_panel=_CHECKPOINTS),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue from this checkpoint.", rich_help_panel=_CHECKPOINTS)
    ] = None,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Test the checkpoint that --resume names, and train nothing.",
            rich_help_panel=_CHECKPOINTS,
        ),
    ] = False,
    dist_url: Annotated[
        str | None,
        typer.Option(
            help="Join ranks started elsewhere: file://PATH, tcp://host:port or env://.",
            rich_help_panel=_ELSEWHERE,
        ),
    ] = None,
    world_size: Annotated[
        int | None,
        typer.Option(help="With --dist-url: the number of ranks.", rich_help_panel=_ELSEWHERE),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(help="With --dist-url: the rank of this process.", rich_help_panel=_ELSEWHERE),
    ] = None,
    multiprocessing_distributed: Annotated[
        bool,
        typer.Option(
            "--multiprocessing-distributed",
            help="Launch --nproc ranks here (default: one per GPU, else 2); --world-size and --rank count machines.",
            rich_help_panel=_ELSEWHERE,
        ),
    ] = False,
    dist_backend: Annotated[str, typer.Option(help="Only gloo.", rich_help_panel=_ELSEWHERE)] = "gloo",
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Network interfaces for Gloo (GLOO_SOCKET_IFNAME).",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Longest wait for other ranks, at the start and in each collective, in seconds.",
            rich_help_panel=_NETWORK,
        ),
    ] = _DEFAULTS.timeout_s,
    watchdog: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="A rank without progress for S seconds prints what 'pyddpdiag hang' says. Default: never.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Train with each number of ranks and compare (1 = no DDP).",
            rich_help_panel=_FILES,
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            help="With --scaling: folder for the results. Default: runs/scaling-<time>.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON and nothing else.", rich_help_panel=_FILES)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing trace.", rich_help_panel=_FILES)
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
    sizes = sizes_of(bucket_cap_mb_list or "")
    if sizes:
        Cures(bucket_cap_mb=bucket_cap_mb, bucket_cap_mb_list=sizes)  # they exclude each other
    settings = TrainSettings(
        epochs=epochs,
        batch_size=batch_size,
        # None: that of the network.
        lr=cast(float, lr),
        bucket_cap_mb=cast(float, bucket_cap_mb),
        seed=seed,
        bucket_cap_mb_list=sizes,
        gradient_as_bucket_view=gradient_as_bucket_view,
        threads=threads,
        pin_ranks=pin_ranks,
        hook=_hook(hook),
        compress=cast("Compress | None", compress),
        error_feedback=error_feedback,
        shared_memory=cast(SharedMemory, shared_memory),
        lanes=lanes_of(lanes),
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
        watchdog_s=watchdog,
    )
    if evaluate and trace is None:
        settings = settings.without_hook()  # nothing is trained, so there is nothing to record
    if multiprocessing_distributed:
        count = nproc or _gpus() or 2
        place = _place(None, dist_url, world_size, rank)
        _launch(settings, count, as_json, place)
        return
    place = _place(nproc, dist_url, world_size, rank)
    if scaling is not None:
        _scale(settings, scaling, output_dir, place is not None or nproc is not None, as_json)
    elif place is None:
        _launch(settings, 2 if nproc is None else nproc, as_json)
    else:
        _join(settings, place, as_json)


def _hook(name: str) -> HookKind:
    refuse_combined(name)
    try:
        return HookKind(name)
    except ValueError:
        known = ", ".join(each.value for each in HookKind)
        raise UsageError(f"--hook {name} is not known.", hint=f"choose among: {known}.") from None


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _gpus() -> int:
    require_torch()
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
            say(run(settings, text, output_dir, display, as_json=as_json), end="")
    except RankFailedError as error:
        show_details(error)
        raise
    except KeyboardInterrupt:
        say("Interrupted: all ranks have been ended.", sys.stderr)
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


def _launch(
    settings: TrainSettings, nproc: int, as_json: bool, machine: rendezvous.Place | None = None
) -> None:
    try:
        with Display() as display:
            result = training.launch(settings, nproc, on_event=display, on_note=display.note, machine=machine)
    except RankFailedError as error:
        show_details(error)
        raise
    except KeyboardInterrupt:
        say("Interrupted: all ranks have been ended.", sys.stderr)
        raise typer.Exit(130) from None
    show(result, as_json)


def _join(settings: TrainSettings, place: rendezvous.Place, as_json: bool) -> None:
    try:
        with Display() as display:
            watch = display if place.rank == 0 else _show_nothing
            result = training.join(settings, place, on_event=watch)
    except PyddpdiagError as error:
        if isinstance(error, RankFailedError):
            show_details(error)
        say(f"error: {error}", sys.stderr)
        _leave(2)
    if place.rank == 0:
        show(result, as_json)


def _show_nothing(event: object) -> None:
    del event


def _leave(code: int) -> NoReturn:
    """Ends a rank that failed, at once: a normal exit would wait for Gloo's threads, and they for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
