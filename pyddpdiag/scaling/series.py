"""Runs a series and writes its results."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from pyddpdiag.bench import results
from pyddpdiag.errors import ResultExistsError, ResultWriteError, UsageError
from pyddpdiag.ranks.session import Note
from pyddpdiag.report.charts import picture
from pyddpdiag.scaling.charts import charts, page, text
from pyddpdiag.scaling.model import Run, split_of
from pyddpdiag.train import launch
from pyddpdiag.train.display import Display
from pyddpdiag.train.settings import TrainSettings

_RESULT = "scaling.json"


def parse_sizes(text: str) -> list[int]:
    """`1,2,4` as numbers, in rising order.

    Raises:
        UsageError: it is not a list of positive whole numbers.
    """
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise UsageError(
            f"--scaling is '{text}', which is not a list of numbers.", hint="write --scaling 1,2,4."
        ) from error
    if sizes[0] < 1:
        raise UsageError(f"--scaling holds {sizes[0]}, but at least 1 rank is needed.")
    return sizes


def run(
    settings: TrainSettings, sizes: str, folder: Path | None, display: Display, *, as_json: bool = False
) -> str:
    """Trains with each number of ranks, writes text, pictures and JSON into `folder`, and returns what to print.

    What would keep the results from being written is found before anything is started.

    Raises:
        UsageError: the settings do not fit, or `sizes` is not a list of numbers.
        ResultExistsError: the folder already holds results.
        ResultWriteError: the folder cannot be made or written.
        TrainError: a training cannot be started or fails (see `launch`).
    """
    numbers = parse_sizes(sizes)
    if settings.script or settings.resume or settings.checkpoint or settings.trace:
        raise UsageError(
            "--scaling trains from the start several times, each with a trace of its own.",
            hint="leave --script, --resume, --checkpoint and --trace out; --output-dir names the folder.",
        )
    for number in numbers:
        settings.check_world(number)
    target = folder if folder is not None else Path(time.strftime("runs/scaling-%Y%m%d-%H%M%S"))
    _prepare(target, settings.force)
    runs = []
    for number in numbers:
        display(Note(f"--- {number} {'rank, without DDP' if number == 1 else 'ranks'} ---"))
        runs.append(_one(settings, number, target, display))
    results.save(target / _RESULT, [_entry(settings, run) for run in runs], force=True)
    try:
        (target / "scaling.txt").write_text(text(runs), encoding="utf-8")
        (target / "scaling.html").write_text(page(runs), encoding="utf-8")
        if picture.available():
            for chart in charts(runs):
                (target / f"scaling-{chart.name}.png").write_bytes(picture.as_png(chart))
    except OSError as error:
        raise ResultWriteError(f"cannot write to '{target}': {error.strerror or error}.") from error
    if as_json:
        return (target / _RESULT).read_text(encoding="utf-8")
    note = "" if picture.available() else " No pictures: pip install matplotlib."
    return f"{text(runs, sys.stdout)}\nIn {target}: scaling.json, .txt, .html, .png and the traces.{note}\n"


def _prepare(target: Path, force: bool) -> None:
    if (target / _RESULT).exists() and not force:
        raise ResultExistsError(
            f"'{target / _RESULT}' exists already.", hint="give another --output-dir, or --force."
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "scaling.txt").write_text("", encoding="utf-8")
    except OSError as error:
        raise ResultWriteError(
            f"cannot write to '{target}': {error.strerror or error}.", hint="choose another --output-dir."
        ) from error


def _one(settings: TrainSettings, number: int, target: Path, display: Display) -> Run:
    alone = number == 1
    if alone:
        one = settings.without_hook(ddp=False)
    else:
        trace = str(target / f"ranks-{number}") if settings.hook.records else None
        one = replace(settings, trace=trace)
    result = launch(one, number, on_event=display)
    return Run(number, result, split_of(result))


def _entry(settings: TrainSettings, run: Run) -> results.Entry:
    split = asdict(run.split)
    other = split.pop("other_s")
    return results.scaling_entry(
        world_size=run.world_size,
        model=settings.arch,
        dataset=run.result.dataset,
        batch_size=run.result.batch_size,
        dtype="bfloat16" if settings.amp else "float32",
        duration_s=run.duration_s,
        epochs=[
            {"epoch": int(epoch) - 1, "loss": loss, "accuracy": accuracy, "elapsed_s": elapsed}
            for epoch, elapsed, loss, accuracy in run.curve()
        ],
        split=split,
        more={
            "hook": run.result.hook,
            "ddp": run.result.buckets > 0,
            "buckets": run.result.buckets,
            "lr": run.result.lr,
            "other_s": other,
            "bucket_cap_mb": settings.bucket_cap_mb,
        },
    )
