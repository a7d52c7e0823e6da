"""Starts a launch command for a short time: until its ranks have trained enough steps, or the time for it is over."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.cures.options import Cures
from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.integrations import early_end
from pyddpdiag.integrations.recorded_command import environment_below, program_of
from pyddpdiag.integrations.signals import Ended, to_its_end
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import count
from pyddpdiag.output import clean
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.follow import RunFollower
from pyddpdiag.trace.layout import Kind

OUTPUT: Final = "output.txt"
"""What the command writes, in the folder of its start."""
STEPS: Final = 40
LEAST_S: Final = 3.0
"""That many steps, for so long: short steps need more of them."""
FEWEST: Final = 8
"""Counted steps with which a start says something."""
NEEDED: Final = 14
"""Trained steps of which so many are counted: the first ones are not."""
_LOOK_S: Final = 0.5
_KEEP: Final = 256
_TAIL: Final = 2000
_OURS: Final = "pyddpdiag"


@dataclass(frozen=True)
class Limits:
    """When a start is over.

    Attributes:
        start_s: seconds in which its ranks must have trained their first step.
        train_s: seconds of training after that, at most, once `NEEDED` steps are trained.
        most_s: at most for these.
    """

    start_s: float
    train_s: float
    most_s: float


@dataclass(frozen=True, eq=False)
class Measured:
    """What a start has shown.

    Attributes:
        folder: of its traces.
        step_s: the median of its steps, each of which lasts as long as on its slowest rank; None: not known.
        exposed_s: the median of what a rank waits for communication per step, on the rank that waits longest.
        steps: how many were counted.
        why: why it says nothing; empty: it does.
        report: of its traces; None: there are none that can be read.
        signal_number: of the signal to us meanwhile, which ends all; 0: none came.
    """

    folder: Path
    step_s: float | None = None
    exposed_s: float | None = None
    steps: int = 0
    why: str = ""
    report: RunReport | None = None
    signal_number: int = 0


def run_shortly(
    command: Sequence[str], folder: Path, cures: Cures, start: Start | None, limits: Limits
) -> Measured:
    """Starts a command, with cures, and ends it again; its output goes into a file beside the traces.

    Args:
        command, start: as in `recorded_command.run`.
        folder: of its traces; it does not exist yet.
        cures: what is applied.
        limits: of its time.

    Raises:
        UsageError: there is no such program.
        OSError: the folder cannot be made.
    """
    whole = program_of(command, start, "try")
    folder.mkdir(parents=True)
    enough = _Enough(folder, limits)
    with tempfile.TemporaryDirectory(prefix="pyddpdiag-", ignore_cleanup_errors=True) as notes:
        environ = environment_below(folder, command, cures, start, Path(notes), lines=False)
        with (folder / OUTPUT).open("wb") as output:
            ended = to_its_end(whole, environ, enough=enough, output=output)
        early = early_end.read(Path(notes))
    return _measured(folder, ended, enough, early)


@dataclass
class _Enough:
    """Asked twice a second whether a start is over."""

    folder: Path
    limits: Limits
    began_s: float = field(default_factory=time.monotonic)
    trained_since_s: float | None = None
    late: bool = False  # no step came in time
    looked_s: float = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self.looked_s < _LOOK_S:
            return False
        self.looked_s = now
        steps = steps_of(self.folder)
        if steps < 2:
            # With the first one alone, nobody knows whether the others come.
            self.late = now - self.began_s > self.limits.start_s
            return self.late
        if self.trained_since_s is None:
            self.trained_since_s = now
        trained_s = now - self.trained_since_s
        if steps < NEEDED:
            return trained_s > self.limits.most_s
        return trained_s > self.limits.train_s or (steps >= STEPS and trained_s > LEAST_S)


def steps_of(folder: Path) -> int:
    """How many steps all ranks have trained so far, whose traces are in a folder."""
    with suppress(PyddpdiagError, OSError, ValueError):
        run = RunFollower(folder, _KEEP).look()
        if not run.missing_count:
            newest = [rank.of_kind(Kind.STEP)["step"].tolist() for rank in run.ranks]
            return min(max(steps, default=-1) + 1 for steps in newest)
    return 0


def _measured(folder: Path, ended: Ended, enough: _Enough, early: early_end.Early) -> Measured:
    if ended.signal_number:
        return Measured(folder, why="it was interrupted", signal_number=ended.signal_number)
    try:
        report = load_report(folder) if any(folder.glob("**/rank_*.ddptrace")) else None
    except PyddpdiagError as error:
        return Measured(folder, why=error.message)
    if report is None and enough.late:
        return Measured(folder, why=f"no step was trained within {enough.limits.start_s:.0f} s")
    if report is None:
        return Measured(folder, why=_no_trace(folder, ended, early))
    if not ended.enough and ended.code:
        why = f"the command ended with exit code {shown(ended.code)}{_said(folder)}"
        return Measured(folder, why=why, report=report)
    step_s, exposed_s, steps = medians(report)
    if steps < FEWEST or step_s is None:
        why = f"only {count(steps, 'step')} could be counted, and {FEWEST} are needed"
        return Measured(folder, None, None, steps, why, report)
    return Measured(folder, step_s, exposed_s, steps, "", report)


def medians(report: RunReport) -> tuple[float | None, float | None, int]:
    """Median step and exposed communication in seconds, and of how many steps: those that all ranks have ended.

    Of each step the slowest rank's time counts, and the longest wait.
    """
    table = report.steps
    known = table.take(table.judged & np.isfinite(table.wall_ms))
    steps, first, ranks = np.unique(known.step, return_index=True, return_counts=True)
    whole = ranks == len(report.ranks)
    if not len(steps) or not whole.any():
        return None, None, 0
    wall = np.maximum.reduceat(known.wall_ms, first)[whole]
    exposed = np.fmax.reduceat(known.exposed_ms, first)[whole]
    waits = exposed[np.isfinite(exposed)]
    return (
        float(np.median(wall)) / 1e3,
        float(np.median(waits)) / 1e3 if len(waits) else None,
        int(whole.sum()),
    )


def _no_trace(folder: Path, ended: Ended, early: early_end.Early) -> str:
    why = early_end.why_nothing(early, ended.code).rstrip(".")
    if not ended.code:
        return why
    return why + (f" (its output: {folder / OUTPUT})" if early.error else _said(folder))


def _said(folder: Path) -> str:
    """The last line that the command wrote, and where the others are."""
    with suppress(OSError):
        text = (folder / OUTPUT).read_bytes()[-_TAIL:].decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_OURS)]
        if lines:
            return f" (its last line: {clean(lines[-1], 160)}; all of its output: {folder / OUTPUT})"
    return f" (its output: {folder / OUTPUT})"
