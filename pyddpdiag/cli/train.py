"""`pyddpdiag train`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import typer

from pyddpdiag import train as training
from pyddpdiag._loader import require_torch
from pyddpdiag.cli._options import cures_given, cures_table, leave_failed, option, with_options
from pyddpdiag.cures.options import Cures
from pyddpdiag.errors import PyddpdiagError, RankFailedError, UsageError
from pyddpdiag.output import say
from pyddpdiag.paths.averaging import HookKind, refuse_combined
from pyddpdiag.ranks import rendezvous
from pyddpdiag.train import TrainResult
from pyddpdiag.train.display import Display
from pyddpdiag.train.settings import Device, TrainSettings
from pyddpdiag.train.summary import keep, summary
from pyddpdiag.workloads.archs import TRAINED

_DEFAULTS = TrainSettings()
_SHOWN = ("shared_memory", "compress", "bucket_cap_mb", "threads")
# Panels of --help. What has none comes first: all that a newcomer needs.
_TRAINING = "Training"
_CURES = "How gradients are averaged, and where"
_CHECKPOINTS = "Checkpoints"
_ELSEWHERE = "Ranks started elsewhere, and several machines"
_FILES = "Scaling and output"


def _rare(name: str, kind: Any, text: str, panel: str, *rest: Any, **more: Any) -> inspect.Parameter:
    """An option that the first help hides: most are the article's own."""
    return option(name, kind, text, *rest, rich_help_panel=panel, hidden=True, **more)


# Those of TrainSettings, by the names of its fields.
_SETTINGS = (
    option("arch", str, f"The network: {', '.join(TRAINED)}.", _DEFAULTS.arch),
    option(
        "data",
        str,
        "Images in DATA/train/<class>/ (and DATA/val), or a text file for the transformer.",
        metavar="PATH",
    ),
    option("epochs", int, "Passes over the training set.", _DEFAULTS.epochs),
    option(
        "batch_size",
        int,
        "Samples per step over all ranks, split evenly; the first ranks take the rest.",
        _DEFAULTS.batch_size,
    ),
    option(
        "script",
        str,
        "Run a training function of your own; default: train().",
        metavar="FILE[:FUNCTION]",
    ),
    option("trace", str, "Folder for the trace. Default: runs/<time>.", metavar="DIR"),
    option("force", bool, "Replace an existing trace."),
    _rare(
        "scale_lr",
        bool,
        "Treat --batch-size as per rank, and multiply --lr by the number of ranks.",
        _TRAINING,
    ),
    _rare("lr", float, "Peak learning rate. Default: 0.03; resnet 0.05; transformer 0.003.", _TRAINING),
    _rare("seed", int, "Fixes the initial weights and the order of the samples.", _TRAINING, _DEFAULTS.seed),
    _rare(
        "image_size", int, "Crop images to this many pixels on each side.", _TRAINING, _DEFAULTS.image_size
    ),
    _rare("workers", int, "Threads per rank that load samples ahead.", _TRAINING, _DEFAULTS.workers),
    _rare("amp", bool, "Forward and backward in bfloat16 (autocast).", _TRAINING),
    _rare("device", str, "auto (a GPU per rank if there are enough), cpu or cuda.", _TRAINING, "auto"),
    _rare(
        "checkpoint", str, "Write a checkpoint to this file after each epoch.", _CHECKPOINTS, metavar="FILE"
    ),
    _rare("resume", str, "Continue from this checkpoint.", _CHECKPOINTS, metavar="FILE"),
    _rare("evaluate", bool, "Test the checkpoint that --resume names, and train nothing.", _CHECKPOINTS),
    _rare(
        "timeout_s",
        float,
        "Longest wait for other ranks, at the start and in each collective, in seconds.",
        _ELSEWHERE,
        _DEFAULTS.timeout_s,
        "--timeout",
    ),
    _rare(
        "watchdog_s",
        float,
        "A rank without progress for S seconds prints what 'pyddpdiag hang' says. Default: never.",
        _FILES,
        None,
        "--watchdog",
        metavar="S",
    ),
)
_OTHERS = (
    option("nproc", int, "Ranks to launch on this machine. Default: 2."),
    option(
        "hook",
        str,
        "native, timed: record (recorder.attach, a hook from Python); plain: no hook; builtin: torch's.",
        _DEFAULTS.hook.value,
    ),
    option("scaling", str, "Train with each number of ranks and compare (1 = no DDP).", metavar="N,N,..."),
    _rare(
        "output_dir",
        Path,
        "With --scaling: folder for the results. Default: runs/scaling-<time>.",
        _FILES,
        metavar="DIR",
    ),
    _rare("as_json", bool, "Print a summary as JSON and nothing else.", _FILES, None, "--json"),
    _rare(
        "dist_url",
        str,
        "Join ranks started elsewhere: file://PATH, tcp://host:port or env://.",
        _ELSEWHERE,
        metavar="URL",
    ),
    _rare("world_size", int, "With --dist-url: the number of ranks.", _ELSEWHERE),
    _rare("rank", int, "With --dist-url: the rank of this process.", _ELSEWHERE),
    _rare(
        "multiprocessing_distributed",
        bool,
        "Launch --nproc ranks here (default: one per GPU, else 2); --world-size and --rank count machines.",
        _ELSEWHERE,
    ),
    _rare("dist_backend", str, "Only gloo.", _ELSEWHERE, "gloo"),
)
_AVERAGING = cures_table(
    _CURES,
    _SHOWN,
    bucket_cap_mb="DDP's bucket size in MiB. Default: 0.25; transformer 1; resnet 25.",
    threads="torch's threads in each rank. Default: the machine's cores, shared by its ranks.",
    num_workers="",
)


@with_options(_OTHERS[:1], _SETTINGS, _OTHERS[1:], _AVERAGING)
def train(**given: Any) -> None:
    """Train with DDP over Gloo, and record where the time goes: by default, a small network on handwritten digits."""
    if given["dist_backend"] != "gloo":
        raise UsageError(
            f"--dist-backend is {given['dist_backend']}, but pyddpdiag trains and times over gloo only.",
            hint="leave it out; over Gloo a GPU's gradients go through the CPU.",
        )
    if given["device"] not in get_args(Device):
        raise UsageError(
            f"--device is {given['device']}.", hint=f"choose among: {', '.join(get_args(Device))}."
        )
    averaging = cures_given(given)
    Cures(**averaging)  # not both sizes
    own = {row.name: given[row.name] for row in _SETTINGS}
    settings = TrainSettings(hook=_hook(given["hook"]), **own, **averaging)
    if settings.evaluate and settings.trace is None:
        settings = settings.without_hook()  # nothing is trained, so there is nothing to record
    nproc, as_json = given["nproc"], given["as_json"]
    elsewhere = given["dist_url"], given["world_size"], given["rank"]
    if given["multiprocessing_distributed"]:
        _launch(settings, nproc or _gpus() or 2, as_json, _place(None, *elsewhere))
        return
    place = _place(nproc, *elsewhere)
    if given["scaling"] is not None:
        launched = place is None and nproc is None
        _scale(settings, given["scaling"], given["output_dir"], not launched, as_json)
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
    with _display() as display:
        say(run(settings, text, output_dir, display, as_json=as_json), end="")


@contextmanager
def _display() -> Iterator[Display]:
    """Shows what ranks do that are launched here, and why they ended."""
    try:
        with Display() as display:
            yield display
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
    with _display() as display:
        result = training.launch(settings, nproc, on_event=display, machine=machine)
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
        leave_failed()
    if place.rank == 0:
        show(result, as_json)


def _show_nothing(event: object) -> None:
    del event


def show_details(error: RankFailedError) -> None:
    """The traceback of the rank that failed, on standard error."""
    if error.details:
        say(error.details, sys.stderr)


def show(result: TrainResult, as_json: bool) -> None:
    """What was trained, and the report of the trace if there is one."""
    from pyddpdiag.pipeline import explain_gpus, print_report

    low_use = explain_gpus(result.gpus, result.trace)
    try:
        keep(result)
    except OSError as error:
        say(f"The losses were not written beside the trace: {error.strerror or error}.", sys.stderr)
    if as_json:
        say(json.dumps(summary(result, low_use), indent=2))
        return
    accuracy = f"Test accuracy {result.accuracy:.2%}" if result.history else "Done"
    say(
        f"{accuracy} after {len(result.history)} epochs in {result.seconds:.1f} s, "
        f"{result.world_size} ranks, {result.buckets} buckets, hook {result.hook}."
    )
    for use in result.gpus:
        why = low_use.get(use.rank)
        say(str(use) if why is None else f"{use} {why.advice}")
    if result.trace is None:
        say("Nothing was recorded, so there is no report; --hook native records training.")
        return
    sys.stdout.flush()
    print_report(Path(result.trace))
