"""Runs a command so that every rank below it is recorded, and shows the verdict in the end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pyddpdiag.errors import PyddpdiagError, TraceExistsError, UsageError
from pyddpdiag.integrations import early_end
from pyddpdiag.integrations.unchanged import FOLDER
from pyddpdiag.model.command import NAME, CommandEnd
from pyddpdiag.output import say

_STARTUP = Path(__file__).resolve().parent / "startup"


def new_folder() -> Path:
    """A folder for a run that was given none."""
    return Path(time.strftime("ddptrace-%Y%m%d-%H%M%S-") + secrets.token_hex(2))


def environment(folder: Path | None) -> dict[str, str]:
    """What a process needs in its environment so that the ranks below it record into `folder`."""
    path = os.environ.get("PYTHONPATH")
    entries = [entry for entry in (path or "").split(os.pathsep) if entry and Path(entry) != _STARTUP]
    return {
        FOLDER: "" if folder is None else str(folder.absolute()),
        "PYTHONPATH": os.pathsep.join([str(_STARTUP), *entries]),
    }


def run(command: Sequence[str], folder: Path) -> int:
    """Runs a command to its end and shows the verdict on standard error; the command's exit code.

    Args:
        command: a program and its arguments, such as torchrun and a script.
        folder: of the run.

    Raises:
        TraceExistsError: the folder holds traces of an earlier run.
        UsageError: there is no such program.
    """
    if any(folder.glob("rank_*.ddptrace")):
        raise TraceExistsError(
            f"there are traces already in '{folder}'.", hint="give each run a folder of its own: --trace DIR."
        )
    program = shutil.which(command[0])
    if program is None:
        hint = "give the whole command, as you type it without pyddpdiag."
        if command[0].endswith(".py"):
            hint = f"pyddpdiag run -- python {command[0]}"
        raise UsageError(f"there is no program '{command[0]}'.", hint=hint)
    with tempfile.TemporaryDirectory(prefix="pyddpdiag-", ignore_cleanup_errors=True) as notes:
        environ = {**os.environ, **environment(folder), early_end.NOTES: notes}
        end = _to_its_end([program, *command[1:]], environ)
        early = early_end.read(Path(notes))
    _note(folder, end)
    show(folder, why_nothing=early_end.why_nothing(early, end.exit_code))
    return end.exit_code


def _note(folder: Path, end: CommandEnd) -> None:
    """Notes beside the traces how the command ended; without them there is nothing to add it to."""
    with suppress(OSError):
        if folder.is_dir():
            (folder / NAME).write_text(json.dumps(asdict(end)), encoding="utf-8")


def show(folder: Path, why_nothing: str = "") -> None:
    """The verdict over what was recorded, on standard error: standard output is the script's.

    Args:
        folder: of the run.
        why_nothing: what to say if nothing was recorded; empty: nothing is known of that.
    """
    from pyddpdiag.pipeline import print_report

    say(f"\npyddpdiag: {folder}", sys.stderr)
    if not any(folder.glob("**/rank_*.ddptrace")):
        say(f"nothing was recorded: {why_nothing or early_end.why_nothing(early_end.Early(), 0)}", sys.stderr)
        return
    try:
        print_report(folder, file=sys.stderr)
    except PyddpdiagError as error:
        say(f"no verdict: {error}", sys.stderr)


def _to_its_end(command: list[str], environ: dict[str, str]) -> CommandEnd:
    """How a command ended; its exit code as a shell says it where a signal ended it."""
    got: list[tuple[str, float]] = []
    with subprocess.Popen(command, env=environ) as process:

        def terminate(*_: object) -> None:
            got.append(("SIGTERM", time.time()))
            with suppress(OSError):
                process.terminate()

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            while True:
                # Ctrl-C reaches the command as well, and it ends in its own time.
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    got.append(("SIGINT", time.time()))
                    continue
                got += [(name, 0.0) for name in ("SIGINT", "SIGTERM") if code == -getattr(signal, name)]
                return CommandEnd(code if code >= 0 else 128 - code, *next(iter(got), ()))
        finally:
            signal.signal(signal.SIGTERM, before)


__all__ = ["environment", "new_folder", "run", "show"]
