"""Reads a run for other tools, and writes the files that they open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.details import gradient_norms_of_none
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.summary import summary
from pyddpdiag.analyse.timeline import gradient_norms, joined_norms, timeline
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import TraceError, UsageError
from pyddpdiag.export import merge
from pyddpdiag.export.format import Format
from pyddpdiag.export.formats import FORMATS
from pyddpdiag.export.run import ClockBase, ExportedRun
from pyddpdiag.files import refuse_existing, write_whole
from pyddpdiag.model.details import GradientNorms, RankTimeline
from pyddpdiag.model.words import listed
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.budget import USUAL_GB
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.run import held_records, open_run

MOST_EVENTS: Final = 3_000_000
"""Of a trace in Chrome's format, over all ranks: no viewer opens more, and each takes 200 bytes."""

_OPTION: Final = "--output-dir"


@dataclass(frozen=True)
class Wanted:
    """Which files to write. `profiles`: traces of torch.profiler to merge with. `steps`: only these in time lines."""

    formats: Sequence[Format] = ()
    profiles: Sequence[Path] = ()
    steps: range | None = None

    @property
    def timelines(self) -> bool:
        """Whether single events are needed."""
        return bool(self.profiles) or any(wanted.timelines for wanted in self.formats)

    @property
    def memory_gb(self) -> float:
        """How much memory the records may take; 0: as much as they need."""
        return 0.0 if self.profiles or any(wanted.whole for wanted in self.formats) else USUAL_GB


def read_run(
    source: str | PathLike[str],
    *,
    timelines: bool = True,
    steps: range | None = None,
    attempt: int | None = None,
    memory_gb: float = 0.0,
) -> ExportedRun:
    """Read a run's traces for exports.

    Args:
        source: the folder where the recorders wrote.
        timelines: also what each rank did.
        steps: of these steps only.
        attempt: as in `load_report`.
        memory_gb: as in `open_run`.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such attempt, or there is too much to show.
    """
    folder, _ = choose_attempt(Path(source), attempt)
    if timelines and steps is None:
        _check_records(sum(held_records(folder)))
    intake = Intake()
    run = open_run(folder, visit=intake.take, memory_gb=memory_gb)
    view = RunView(run, intake)
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

    open_run(folder, visit=take, memory_gb=memory_gb)
    if not lines:
        raise TraceError(f"{folder}: another run began there meanwhile.", hint="export it again.")
    return ExportedRun(
        report=summary(view),
        occurrences=view.occurrences,
        norms=joined_norms(norms) if norms else gradient_norms_of_none(),
        timelines=lines,
        bases={
            trace.rank: ClockBase(trace.header.monotonic_ns, trace.header.wall_ns, offsets[trace.rank])
            for trace in run.ranks
        },
        step_ends=view.step_ends,
        stacks=tuple(view.lines.collapsed()),
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
    if not wanted.formats and not wanted.profiles:
        options = listed(f"--{known.name}" for known in FORMATS)
        raise UsageError("nothing is to be exported.", hint=f"give one or more of --merge, {options}.")
    # Read before the traces, which take longer.
    profiles = [(path, merge.read_profile(path)) for path in wanted.profiles]
    run = read_run(
        source, timelines=wanted.timelines, steps=wanted.steps, attempt=attempt, memory_gb=wanted.memory_gb
    )
    if wanted.timelines:
        _check_size(run)
    outputs = [output for format in wanted.formats for output in format.outputs(run)]
    outputs += [merge.output(run, profile, path) for path, profile in profiles]
    owned = [folder / known.folder for known in wanted.formats if known.folder]
    refuse_existing([*owned, *(folder / output.path for output in outputs)], force, _OPTION)
    for stale in [
        old for known in wanted.formats if known.stale for old in (folder / known.folder).glob(known.stale)
    ]:
        stale.unlink(missing_ok=True)
    for output in outputs:
        write_whole(folder / output.path, output.content(), force=force, option=_OPTION)
    return [folder / output.path for output in outputs]


def _check_records(records: int) -> None:
    """Before they are read: each is an event at least."""
    if records > MOST_EVENTS:
        raise UsageError(
            f"the run has {records / 1e6:.1f} million records, more events than any viewer opens.",
            hint="export a part of it, such as --steps 1000-2000; `pyddpdiag report` says which steps there are.",
        )


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
