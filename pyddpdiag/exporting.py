"""Reads a run for other tools, and writes the files that they open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.details import gradient_norms_of_none
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.timeline import gradient_norms, joined_norms, timeline
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import TraceError, UsageError
from pyddpdiag.export import chrome, columns, frames, merge, openmetrics
from pyddpdiag.export.run import ClockBase, ExportedRun
from pyddpdiag.files import refuse_existing, write_whole
from pyddpdiag.model.details import GradientNorms, RankTimeline
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.run import open_run

MOST_EVENTS: Final = 3_000_000
"""Of a trace in Chrome's format, over all ranks: no viewer opens more, and each takes 200 bytes."""

_OPTION: Final = "--output-dir"


@dataclass(frozen=True)
class Wanted:
    """Which files to write. `profiles`: traces of torch.profiler to merge with. `steps`: only these in time lines."""

    chrome: bool = False
    profiles: Sequence[Path] = ()
    csv: bool = False
    parquet: bool = False
    tensorboard: bool = False
    openmetrics: bool = False
    steps: range | None = None

    @property
    def timelines(self) -> bool:
        """Whether single events are needed."""
        return self.chrome or bool(self.profiles)


def read_run(
    source: str | PathLike[str],
    *,
    timelines: bool = True,
    steps: range | None = None,
    attempt: int | None = None,
) -> ExportedRun:
    """Read a run's traces for exports.

    Args:
        source: the folder where the recorders wrote.
        timelines: also what each rank did.
        steps: of these steps only.
        attempt: as in `load_report`.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such attempt.
    """
    folder, _ = choose_attempt(Path(source), attempt)
    intake = Intake()
    run = open_run(folder, visit=intake.take)
    report, view = analyse(run, intake), RunView(run, intake)
    offsets = {trace.rank: clock.offset_ns for trace, clock in zip(run.ranks, view.clocks, strict=True)}
    chosen = None if steps is None else np.arange(steps.start, steps.stop, dtype=np.int64)
    lines: list[RankTimeline] = []
    norms: list[GradientNorms] = []

    def take(trace: RankTrace) -> None:
        # A run that has started again meanwhile is another one.
        if trace.header.run_id == run.run_id:
            lines.append(
                timeline(trace, offsets.get(trace.rank, 0), chosen if timelines else np.empty(0, np.int64))
            )
            norms.append(gradient_norms(trace))

    open_run(folder, visit=take)
    if not lines:
        raise TraceError(f"{folder}: another run began there meanwhile.", hint="export it again.")
    return ExportedRun(
        report=report,
        occurrences=view.occurrences,
        norms=joined_norms(norms) if norms else gradient_norms_of_none(),
        timelines=lines,
        bases={
            trace.rank: ClockBase(trace.header.monotonic_ns, trace.header.wall_ns, offsets[trace.rank])
            for trace in run.ranks
        },
        step_ends=view.step_ends,
    )


def write_exports(
    source: str | PathLike[str],
    folder: Path,
    wanted: Wanted,
    *,
    attempt: int | None = None,
    force: bool = False,
) -> list[Path]:
    """Write the wanted files into `folder`. Returns what was written.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: nothing is wanted, a package is missing, a profile is of another run, or there is too much to show.
        ResultExistsError: a file exists, and `force` is not given.
        ResultWriteError: a file cannot be written.
    """
    if wanted == Wanted(steps=wanted.steps):
        raise UsageError(
            "nothing is to be exported.",
            hint="give --chrome, --merge, --csv, --parquet, --tensorboard or --openmetrics, several if you like.",
        )
    # Read before the traces, which take longer.
    profiles = [(path, merge.read_profile(path)) for path in wanted.profiles]
    run = read_run(source, timelines=wanted.timelines, steps=wanted.steps, attempt=attempt)
    if wanted.timelines:
        _check_size(run)
    contents: dict[Path, Callable[[], str | bytes]] = {}
    if wanted.chrome:
        for line in run.timelines:
            contents[folder / "chrome" / f"rank_{line.rank}.json"] = _rank(run, line)
        contents[folder / "chrome-all-ranks.json"] = lambda: chrome.written(chrome.whole_document(run))
    for path, profile in profiles:
        rank = merge.rank_of(profile, run, path)
        contents[folder / "merged" / f"rank_{rank}.json"] = _merged(run, profile, rank)
    if wanted.csv or wanted.parquet:
        for name, table in columns.tables(run.report, run.occurrences).items():
            if table and wanted.csv:
                contents[folder / f"{name}.csv"] = _table(frames.as_csv, table)
            if table and wanted.parquet:
                contents[folder / f"{name}.parquet"] = _table(frames.as_parquet, table)
    if wanted.openmetrics:
        contents[folder / "pyddpdiag.prom"] = lambda: openmetrics.report_metrics(run.report)
    board = folder / "tensorboard"
    refuse_existing([*contents, *([board] if wanted.tensorboard else [])], force, _OPTION)
    for path, content in contents.items():
        write_whole(path, content(), force=force, option=_OPTION)
    if not wanted.tensorboard:
        return list(contents)
    from pyddpdiag.export.tensorboard import write_scalars

    # TensorBoard reads all files of a folder: those of an earlier export would stay.
    for old in board.glob("*/events.out.tfevents.*") if force else ():
        old.unlink(missing_ok=True)
    return [*contents, *write_scalars(run, board)]


def _rank(run: ExportedRun, line: RankTimeline) -> Callable[[], str]:
    return lambda: chrome.written(chrome.rank_document(run, line))


def _merged(run: ExportedRun, profile: dict[str, object], rank: int) -> Callable[[], str]:
    return lambda: chrome.written(merge.merged(run, profile, rank))


def _table(
    made: Callable[[columns.Columns], str | bytes], table: columns.Columns
) -> Callable[[], str | bytes]:
    return lambda: made(table)


def _check_size(run: ExportedRun) -> None:
    amount = sum(
        7 * len(line.buckets) + 6 * len(line.steps) + len(line.collectives) for line in run.timelines
    )
    if amount > MOST_EVENTS:
        numbers = np.unique(run.report.steps.step)
        fit = max(1, int(len(numbers) * MOST_EVENTS / amount))
        first = int(numbers[0])
        raise UsageError(
            f"the run has some {amount / 1e6:.0f} million events, more than any viewer opens.",
            hint=f"export a part of it, such as --steps {first}-{first + fit}.",
        )
