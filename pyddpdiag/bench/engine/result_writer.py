"""The result file of a sweep in progress: nothing is lost, and rounds of other machines are kept out."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyddpdiag.bench.engine.collect import Collected
from pyddpdiag.bench.engine.launches import Remaining
from pyddpdiag.bench.engine.plan import USUAL_ROUNDS, SweepPlan
from pyddpdiag.bench.machine import machine_info
from pyddpdiag.bench.reading import read
from pyddpdiag.bench.results import Entry, launches_of, save
from pyddpdiag.errors import ResultError, ResultExistsError, ResultWriteError, UsageError
from pyddpdiag.ranks import interfaces

SAVE_EVERY_S: Final = 5.0


@dataclass
class ResultWriter:
    """Keeps the results of a sweep in a file.

    Attributes:
        path: the file.
        force: replace a file that is there.
        resume: continue the sweep in an existing file.
        before: what the file already holds of this sweep.
    """

    path: Path
    force: bool = False
    resume: bool = False
    before: list[Entry] = field(default_factory=list)
    _saved_at: float = 0.0

    def open(self, plan: SweepPlan) -> Remaining:
        """What is left to do of the plan.

        Nothing has been started yet when this raises.

        Raises:
            ResultExistsError: there is a file already, and it is neither to be replaced nor resumed.
            ResultWriteError: its folder cannot be made or written.
            ResultError: the file to resume cannot be read.
            UsageError: the file to resume is of another sweep.
        """
        if self.resume and self.path.exists():
            return self._left(plan)
        if self.path.exists() and not self.force:
            raise ResultExistsError(
                f"'{self.path}' exists already.",
                hint="give another --output, --force to replace it, or --resume to go on with it.",
            )
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ResultWriteError(
                f"cannot write to '{folder}': {error.strerror or error}.", hint="give another --output."
            ) from error
        return whole(plan)

    def keep(self, collected: Collected, complete: bool) -> Path | None:
        """Writes what there is.

        Args:
            collected: what was measured until now.
            complete: nothing more will follow. Otherwise a failed write is left to the next call.

        Returns:
            The file, or None if nothing was written.

        Raises:
            ResultWriteError: the file cannot be written; the hint names another one that holds the results.
        """
        entries = collected.entries(self.before)
        if not entries:
            return None
        left_out = {collected.label(case): why for case, why in collected.left_out.items()}
        sweep = {"complete": complete, "left_out": left_out, "rounds": collected.plan.rounds}
        self._saved_at = time.monotonic()
        try:
            return save(self.path, entries, force=True, sweep=sweep)
        except ResultWriteError as error:
            if not complete:
                return None  # there will be another try
            other = Path(tempfile.mkdtemp(prefix="pyddpdiag-bench-")) / self.path.name
            save(other, entries, sweep=sweep)
            raise ResultWriteError(error.message, hint=f"what was measured is in '{other}'.") from error

    def keep_now_and_then(self, collected: Collected) -> None:
        """`keep`, at most every few seconds.

        Raises:
            ResultWriteError: as `keep`.
        """
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.keep(collected, complete=False)

    def _left(self, plan: SweepPlan) -> Remaining:
        found = read(self.path)
        here = machine_info()
        for key in ("node", "torch"):
            if found.machine.get(key) != here[key]:
                raise ResultError(
                    f"'{self.path}' was begun with another {'machine' if key == 'node' else key} "
                    f"({found.machine.get(key)!r}, here {here[key]!r}); rounds of both don't mix.",
                    hint="start a new sweep with another --output.",
                )
        self.before = list(found.entries)
        default, _ = interfaces.choose((), local=True)
        labels = [plan.label(case, default) for case in range(len(plan.cases))]
        done = {entry.name: len(entry.round_s) for entry in self.before}
        had = [done.get(label, 0) for label in labels]
        # Where only the budget limits the rounds, a case is done once it has the usual number.
        wanted = plan.rounds or USUAL_ROUNDS
        left = tuple(case for case, rounds in enumerate(had) if rounds < wanted)
        if not left:
            raise UsageError(
                f"the sweep in '{self.path}' is complete.",
                hint="--force measures it again; --rounds adds rounds.",
            )
        counts = {entry.name: len(launches_of(entry)) for entry in self.before}
        launched = min(counts.get(labels[case], 0) for case in left)
        rounds = None if plan.rounds is None else plan.rounds - min(had[case] for case in left)
        return Remaining(left, rounds, max(1, plan.launches - launched))


def whole(plan: SweepPlan) -> Remaining:
    """The whole plan."""
    return Remaining(tuple(range(len(plan.cases))), plan.rounds, plan.launches)
