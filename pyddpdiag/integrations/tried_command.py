"""`pyddpdiag try`: a command whose cures are tried, by turns in its run or by starts, and what comes of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyddpdiag.cures.options import from_options
from pyddpdiag.cures.trial_candidates import Wanted
from pyddpdiag.cures.trial_options import Trial
from pyddpdiag.errors import TraceExistsError, UsageError
from pyddpdiag.integrations import recorded_command
from pyddpdiag.integrations.recorded_command import COULD_NOT_JUDGE
from pyddpdiag.integrations.restart_trial import RestartTrial
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.tried import NAME, Keep, Tried, tried_to_json
from pyddpdiag.output import say
from pyddpdiag.pipeline import load_details
from pyddpdiag.report.run.page import require_free, write_pages
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.trial import print_trial
from pyddpdiag.system.result_files import refuse_existing, write_whole
from pyddpdiag.trace.notes import start_to_show


@dataclass(frozen=True)
class Files:
    """Where the result goes besides the screen; None: nowhere. `force`: over files that are there."""

    json: Path | None = None
    html: Path | None = None
    force: bool = False

    def refuse(self) -> None:
        """Looks before the work begins.

        Raises:
            ResultExistsError: a file is there.
            UsageError: a package for pages is missing.
        """
        refuse_existing([self.json] if self.json is not None else [], self.force, "--json")
        require_free(self.html, None, force=self.force)

    def write(self, tried: Tried, folder: Path, report: RunReport | None = None) -> None:
        """Writes them. `report`: of the folder, if it is known already.

        Raises:
            ResultWriteError: the system refuses.
            UsageError: a package for pages is missing.
        """
        if self.json is not None:
            text = json.dumps(tried_to_json(tried), indent=2, allow_nan=False) + "\n"
            write_whole(self.json, text, force=self.force, option="--json")
            say(f"Written: {self.json}", sys.stderr)
        recorded = any(folder.glob("rank_*.ddptrace")) or start_to_show(folder) is not None
        if self.html is not None and not recorded:
            say(f"no page is written to {self.html}: nothing was recorded.", sys.stderr)
        elif self.html is not None:
            write_pages(*load_details(folder, report=report), self.html, None, force=self.force)
            say(f"Written: {self.html}", sys.stderr)


def by_starts(
    command: Sequence[str],
    folder: Path,
    wanted: Sequence[Wanted],
    *,
    minutes: float,
    keep: Keep | None,
    start: Start | None,
    files: Files,
) -> int:
    """Tries cures by starting the command again and again; shows the result on standard error.

    Args:
        command, start: as in `recorded_command.run`.
        folder: of the trial, which holds a folder for each start.
        wanted: the cures.
        minutes: for all starts.
        keep: whether to start the whole training in the end, with the best or as it was; None: not at all.
        files: what else to write.

    Returns:
        0: it judged, whether something is to be gained or not; 2: it could not; 128 and a signal's number: that ended
            it. Of a training in the end, its exit code.

    Raises:
        TraceExistsError: the folder holds a trial or traces.
        UsageError: there is no such program, or it runs on several machines.
    """
    if any(folder.glob("rank_*.ddptrace")) or (folder / NAME).exists():
        raise TraceExistsError(
            f"there is a trial or a trace already in '{folder}'.",
            hint="give each trial a folder of its own: --trace DIR.",
        )
    if start is not None and start.nnodes > 1:
        raise UsageError(
            "--restart starts the ranks of one machine.",
            hint="give a command that starts the ranks of all machines, such as mpirun, and a --trace folder that "
            "they share.",
        )
    recorded_command.program_of(command, start, "try")
    files.refuse()
    trial = RestartTrial(command, start, wanted, folder, 60 * minutes)
    tried = trial.run()
    with suppress(OSError):  # a terminal that hung up
        say(f"\npyddpdiag: {folder}", sys.stderr)
        print_trial(screen_for(sys.stderr), tried)
    files.write(tried, folder)
    if trial.signal_number:
        return 128 + trial.signal_number
    if keep is not None:
        best = tried.best_cure if keep == "best" else None
        cures = None if best is None else from_options(best.options)
        say(
            f"\npyddpdiag try: starts the training {f'with {best.name}' if best else 'as it is'}.", sys.stderr
        )
        return recorded_command.run(command, folder, cures, start=start)
    return 0 if tried.answers else COULD_NOT_JUDGE


def in_one_run(
    command: Sequence[str], folder: Path, trial: Trial, *, start: Start | None, files: Files
) -> int:
    """Runs the training once; cures take turns in it. Its verdict and the result come on standard error.

    Args:
        command, folder, start: as in `recorded_command.run`.
        trial: what to try, and for how long.
        files: what else to write.

    Returns:
        The training's exit code, if it is not 0; else 0: it judged, whether something is to be gained or not; 2: not.

    Raises:
        TraceExistsError: the folder holds traces of an earlier run.
        UsageError: there is no such program.
    """
    files.refuse()
    shown: list[RunReport] = []
    code = recorded_command.run(command, folder, start=start, trial=trial, take=shown.append)
    if not shown:
        return code or COULD_NOT_JUDGE  # `run` has said why there is nothing
    tried = shown[0].tried
    if tried is None:
        say(
            "no cure was tried: no DDP module over Gloo trained long enough for a trial to begin.", sys.stderr
        )
        return code or COULD_NOT_JUDGE
    files.write(tried, folder, shown[0])
    return code or (0 if tried.answers else COULD_NOT_JUDGE)
