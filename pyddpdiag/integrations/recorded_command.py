"""Runs a command so that every rank below it is recorded, and shows the verdict in the end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from pyddpdiag._loader import require_torch
from pyddpdiag.cures.options import Cures
from pyddpdiag.cures.trial_options import Trial, to_text
from pyddpdiag.errors import NativeModuleError, PyddpdiagError, TraceExistsError, UsageError
from pyddpdiag.integrations import early_end, tasks
from pyddpdiag.integrations.apart import how_to_collect
from pyddpdiag.integrations.asked import FOLDER, LAUNCH, LINES, TRIAL
from pyddpdiag.integrations.bringing import Bringing, Gather, names_machines, run_gather
from pyddpdiag.integrations.meanwhile import Meanwhile
from pyddpdiag.integrations.node_beat import NodeBeat
from pyddpdiag.integrations.started_ranks import Start, noted_codes
from pyddpdiag.model.command import NAME, CommandEnd
from pyddpdiag.model.fields import to_json
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.report import RunReport
from pyddpdiag.output import say
from pyddpdiag.remote import held, secret
from pyddpdiag.remote.copy import at_hand
from pyddpdiag.remote.local import files_of
from pyddpdiag.trace.notes import is_over
from pyddpdiag.trace.starts import forget_ended

COULD_NOT_JUDGE: Final = 2
"""What a trial ends with that found nothing to try."""
_STARTUP = Path(__file__).resolve().parent / "startup"


def new_folder() -> Path:
    """A folder for a run that was given none: a common one for all tasks of a job."""
    task = tasks.here()
    if task is not None:
        return task.folder
    return Path(time.strftime("ddptrace-%Y%m%d-%H%M%S-") + secrets.token_hex(2))


def environment(folder: Path | None, *, lines: bool = True) -> dict[str, str]:
    """What a process needs in its environment so that the ranks below it record into `folder`, with their `lines`."""
    path = os.environ.get("PYTHONPATH")
    # An empty entry stays: Python takes it for the working folder.
    entries = [entry for entry in path.split(os.pathsep) if Path(entry) != _STARTUP] if path else []
    return {
        FOLDER: "" if folder is None else str(folder.absolute()),
        LINES: "1" if lines else "0",
        "PYTHONPATH": os.pathsep.join([str(_STARTUP), *entries]),
    }


def run(
    command: Sequence[str],
    folder: Path,
    cures: Cures | None = None,
    *,
    lines: bool = True,
    start: Start | None = None,
    bringing: Bringing | None = None,
    gather: Gather | None = None,
    trial: Trial | None = None,
    take: Callable[[RunReport], None] | None = None,
) -> int:
    """Runs a command to its end and shows the verdict on standard error; the command's exit code.

    Args:
        command: a program and its arguments, such as torchrun and a script.
        folder: of the run.
        cures: what to apply to the ranks; None: nothing.
        lines: whether the ranks look at their Python stacks.
        start: which ranks to start of `command`, which is a script then; None: it is a command that starts them.
        bringing: brings the traces to a URL; None: they stay in `folder`.
        gather: sends the traces to the first machine in the end; None: they stay.
        trial: of cures, in the run; None: none.
        take: gets the report that was shown, if there is one.

    Raises:
        TraceExistsError: the folder holds traces of an earlier run.
        UsageError: there is no such program.
    """
    task = tasks.here()
    if task is None and start is not None and start.nnodes > 1:
        # One on each machine, perhaps into a common folder.
        task = tasks.Task(start.node_rank, start.nnodes, "")
    # Another task may have begun already, if this one joins late.
    if any(folder.glob("rank_*.ddptrace")) and (task is None or is_over(folder)):
        raise TraceExistsError(
            f"there are traces already in '{folder}'.", hint="give each run a folder of its own: --trace DIR."
        )
    whole = program_of(command, start)
    if bringing is not None:
        bringing.require_free(whole, task is None and (start is None or start.nnodes == 1))
    # Not in the ranks, which import this file under `python -m pyddpdiag.attach`.
    from pyddpdiag.integrations.signals import to_its_end

    forget_ended(folder)
    is_new = not folder.exists()
    with tempfile.TemporaryDirectory(prefix="pyddpdiag-", ignore_cleanup_errors=True) as notes:
        beat = NodeBeat(folder)
        environ = environment_below(
            folder, command, cures or Cures(), start, Path(notes), lines=lines, node=beat.node
        )
        if trial is not None:
            environ[TRIAL] = to_text(trial)
        if gather is not None:
            environ[secret.FOLDER] = notes
        beat.start()
        limit_s = None if trial is None else 60 * trial.minutes
        meanwhile = Meanwhile(Path(notes), folder, limit_s, ends=trial is not None and trial.stop)
        with bringing.meanwhile() if bringing is not None else nullcontext():
            ended = to_its_end(whole, environ, enough=meanwhile.enough)
        early, known = early_end.read(Path(notes)), secret.handed_over(Path(notes))
        codes = noted_codes(Path(notes))
    number = ended.signal_number or ended.died_of
    name = signal.Signals(number).name if number else ""
    beat.end(ended.code, name, codes)
    if task is None or task.number == 0 or ended.code:
        _note(folder, CommandEnd(ended.code, name, ended.signal_s, ended.left_s))
    # Of ranks that were killed; the others have cut theirs. Before any of them is sent.
    for trace in folder.glob("**/rank_*.ddptrace"):
        held.cut(trace)
    recorded = any(folder.glob("rank_*.ddptrace"))
    several = task is not None and task.count > 1
    if gather is not None and gather.node:
        run_gather(folder, gather, known)
    elif task is not None and task.number != 0 and (recorded or start is None):
        # A machine that was started by hand says at least where its traces are.
        place = folder if bringing is None else bringing.shown
        apart = how_to_collect(folder) if bringing is None else ""
        with suppress(OSError):
            if apart:
                say(f"pyddpdiag run: {apart}", sys.stderr)
            elif start is not None:
                say(f"pyddpdiag run: recorded into {place}; the first machine shows the verdict.", sys.stderr)
    else:
        if task is not None and recorded and bringing is None and gather is None:
            tasks.wait_for_others(folder, tasks=task.count)
        if gather is not None:
            run_gather(folder, gather, known)
        show_it = partial(
            show,
            named=str(folder) if bringing is None else bringing.shown,
            why_nothing=meanwhile.why or early_end.why_nothing(early, ended.code),
            interrupted_by=ended.signal_number,
        )
        with suppress(OSError):  # a terminal that hung up
            if bringing is not None and several and recorded:
                report = _show_of_all(folder, bringing, show_it)
                bringing = None
            else:
                report = show_it(folder)
                may_be_apart = gather is None and (several or names_machines(command))
                if may_be_apart and (apart := how_to_collect(folder)):
                    say(f"\npyddpdiag run: {apart}", sys.stderr)
            if report is not None and take is not None:
                take(report)
            if report is None and is_new and not recorded:
                _leave(folder)
    if bringing is not None:
        bringing.finish()
    return COULD_NOT_JUDGE if ended.enough or (meanwhile.why and not ended.code) else ended.code


def _leave(folder: Path) -> None:
    """Removes what tells nothing: notes of ranks that never trained, and that the command ended."""
    with suppress(OSError):
        for name in files_of(folder):
            (folder / name).unlink()
        for below in (*folder.glob("attempt-*"), folder):
            below.rmdir()


def _show_of_all(
    folder: Path, bringing: Bringing, show_it: Callable[[Path], RunReport | None]
) -> RunReport | None:
    """Brings this machine's traces to the place that all have in common, and shows the verdict over what is there.

    Where these could not be brought, or the place cannot be read, over what this machine has.
    """
    if not bringing.finish():
        return show_it(folder)
    try:
        bringing.wait_for_others()
        with at_hand(bringing.url) as copy:
            return show_it(copy)
    except PyddpdiagError as error:
        say(f"pyddpdiag: no verdict: {error}\n  later: pyddpdiag report {bringing.shown}", sys.stderr)
        return None


def program_of(command: Sequence[str], start: Start | None, verb: str = "run") -> list[str]:
    """What to start: the program's path and its arguments. `verb`: the command of pyddpdiag that was given this one.

    Raises:
        UsageError: there is no such program.
    """
    whole = list(command) if start is None else start.command(command)
    program = shutil.which(whole[0])
    if program is None:
        hint = "give the whole command, as you type it without pyddpdiag."
        if whole[0].endswith(".py"):
            hint = (
                f"pyddpdiag {verb} python {whole[0]}, or pyddpdiag {verb} --nproc 2 {whole[0]}; options of pyddpdiag "
                "come before the command."
            )
        raise UsageError(f"there is no program '{whole[0]}'.", hint=hint)
    return [program, *whole[1:]]


def environment_below(
    folder: Path,
    given: Sequence[str],
    cures: Cures,
    start: Start | None,
    notes: Path,
    *,
    lines: bool,
    node: str = "",
) -> dict[str, str]:
    """The environment of a command whose ranks are recorded into `folder`, with cures.

    Args:
        folder: of the run.
        given: the command as the user gave it.
        cures: what to apply to the ranks.
        start: which ranks of it to start; None: it starts them.
        notes: the folder of the processes' notes.
        lines: whether the ranks look at their Python stacks.
    """
    launch = Launch(tuple(given), cures.options(), start.options() if start is not None else {}, node)
    return {
        **os.environ,
        **environment(folder, lines=lines),
        **cures.environment(),
        LAUNCH: json.dumps(to_json(launch)),
        early_end.NOTES: str(notes),
    }


def _note(folder: Path, end: CommandEnd) -> None:
    """Notes beside the traces how the command ended; without them there is nothing to add it to."""
    with suppress(OSError):
        if folder.is_dir():
            (folder / NAME).write_text(json.dumps(asdict(end)), encoding="utf-8")


def show(
    folder: Path, *, named: str = "", why_nothing: str = "", interrupted_by: int = 0
) -> RunReport | None:
    """The verdict over what was recorded, on standard error: standard output is the script's.

    Args:
        folder: of the run.
        named: where the traces will be; empty: in this folder.
        why_nothing: what to say if nothing was recorded; empty: nothing is known of that.
        interrupted_by: the signal that asked `pyddpdiag run` to stop; 0: none did.

    Returns:
        The report; None: nothing was recorded, or it cannot be read.
    """
    from pyddpdiag.pipeline import load_report
    from pyddpdiag.report.text import print_text

    how = f" (interrupted by {signal.Signals(interrupted_by).name})" if interrupted_by else ""
    head = f"\npyddpdiag: {named or folder}{how}"
    if not any(folder.glob("**/rank_*.ddptrace")):
        why = why_nothing or early_end.why_nothing(early_end.Early(), 0)
        try:
            require_torch()
            report = load_report(folder)
            if report.verdict.findings or interrupted_by:
                say(head, sys.stderr)
                print_text(report, sys.stderr)
                return report
        except NativeModuleError as error:
            why = f"{error.message} {error.hint}"
        except PyddpdiagError:
            pass
        # Without the folder, in which nothing is, if it was made at all.
        say(f"\npyddpdiag{how}: nothing was recorded: {why}", sys.stderr)
        return None
    with suppress(OSError):  # a terminal that hung up: the report may yet be written into files
        say(head, sys.stderr)
    try:
        report = load_report(folder)
        with suppress(OSError):
            print_text(report, sys.stderr)
    except PyddpdiagError as error:
        say(f"no verdict: {error}", sys.stderr)
        return None
    return report
