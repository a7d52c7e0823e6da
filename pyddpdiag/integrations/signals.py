"""Signals to `pyddpdiag run` reach its command, and nothing that it started outlives a run that was interrupted."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

import psutil

from pyddpdiag.output import say
from pyddpdiag.ranks.interrupts import StopRequest, blocked, noted, stop_signals

MARK: Final = "PYDDPDIAG_RUN_MARK"
"""The environment variable by which processes are found whose parents are gone."""

# Whoever sends a signal to a process and to its group, as timeout(1) does, has sent one.
_ECHO_S = 0.5
_NOTE_S = 2.0
# For processes that the command left behind: to end by the signal that they have, and then by SIGTERM.
_LEAVE_S = 5.0
_GONE_S = 10.0
_POLL_S = 0.5


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code, as a shell gives it.
        signal_number: of the first signal to us meanwhile; 0: there was none.
        signal_s: when that came, in seconds since 1970; 0: there was none.
        died_of: the signal to stop that ended the command, whoever sent it; 0: none did.
        enough: whether we ended it, since `enough` said so.
    """

    code: int
    signal_number: int
    signal_s: float = 0.0
    died_of: int = 0
    enough: bool = False


def to_its_end(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    enough: Callable[[], bool] | None = None,
    output: IO[bytes] | None = None,
) -> Ended:
    """Runs a command. The first signal to stop is passed on, the second ends the command and all that it started.

    Args:
        command: a program and its arguments.
        environ: of the command.
        enough: asked again and again; once it says so, the command is ended as by SIGTERM. None: only the command
            itself knows when it is done.
        output: where the command writes, errors too; it reads nothing then. None: where we do.
    """
    mark = secrets.token_hex(8)
    # The command first, or it would inherit the mask.
    with (
        noted() as request,
        subprocess.Popen(
            command,
            env={**environ, MARK: mark},
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        ) as process,
        blocked(_waited()),
    ):
        running = _Command(process, mark, request, enough)
        try:
            return running.watch()
        except BaseException:
            running.end()
            raise


def _waited() -> set[int]:
    return {*stop_signals(), *(getattr(signal, name) for name in ("SIGCHLD",) if hasattr(signal, name))}


class _Command:
    """A command that runs, and the signals to us."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        request: StopRequest,
        enough: Callable[[], bool] | None,
    ) -> None:
        self._process = process
        self._mark = mark
        self._request = request
        self._enough = enough
        self._ended_by_us = False  # nobody else had sent a signal yet
        self._first = 0  # the first signal
        self._since = 0.0
        self._first_s = 0.0
        self._again = False  # a second one came
        self._theirs = 0  # a signal that came after we had ended the command ourselves
        self._started: set[psutil.Process] = set()  # by the command, as seen when signals came

    def watch(self) -> Ended:
        """Until the command has ended, and all that it started if it was interrupted."""
        said = False
        while self._process.poll() is None:
            self._take(_POLL_S)
            if not self._first and self._enough is not None and self._enough():
                self._ended_by_us = True
                self._stop(signal.SIGTERM, command_has_it=False)
            if self._again:
                self._started.update(self._tree())
                self._process.kill()
                self._process.wait()
            elif self._first and not (said or self._ended_by_us) and time.monotonic() - self._since > _NOTE_S:
                said = True
                with suppress(OSError):  # a terminal that hung up
                    say("pyddpdiag run: waits for the command to end; a second signal ends it.", sys.stderr)
        if self._first:
            self._end_what_is_left()
        code = self._process.returncode
        died_of = -code if -code in stop_signals() else 0
        shown = code if code >= 0 else 128 - code
        if self._ended_by_us:
            return Ended(shown, self._theirs, self._first_s if self._theirs else 0.0, died_of, enough=True)
        return Ended(shown, self._first, self._first_s, died_of)

    def end(self) -> None:
        """Ends the command and all that it started, at once."""
        self._started.update(self._tree())
        self._first = self._first or signal.SIGTERM
        self._again = True
        self._process.kill()
        self._process.wait()
        self._end_what_is_left()

    def _take(self, seconds: float) -> None:
        """Waits for a signal, or the end of the command, and passes the first signal on."""
        came = self._next(seconds)
        if came is None:
            return
        number, command_has_it = came
        if self._first:
            self._again = self._again or time.monotonic() - self._since > _ECHO_S
            self._theirs = self._theirs or number
            return
        self._stop(number, command_has_it=command_has_it)

    def _stop(self, number: int, *, command_has_it: bool) -> None:
        self._first, self._since, self._first_s = number, time.monotonic(), time.time()
        self._started.update(self._tree())
        if not command_has_it:
            self._pass_on(number)

    def _next(self, seconds: float) -> tuple[int, bool] | None:
        """The next signal, and whether the command has it as well."""
        number, self._request.signal_number = self._request.signal_number, 0
        can_wait = hasattr(signal, "sigtimedwait")
        if number:
            # Where nothing can be held back, on Windows, a console sends Ctrl-C to all its processes.
            return number, not can_wait
        if not can_wait:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return None
        info = signal.sigtimedwait(_waited(), seconds)
        if info is None or info.si_signo == signal.SIGCHLD:
            return None
        # From the kernel and no process: a terminal, which sends it to all of its foreground.
        return info.si_signo, info.si_code > 0

    def _pass_on(self, number: int) -> None:
        with suppress(OSError):
            self._process.send_signal(number)
        if number != signal.SIGINT:
            return
        # As from a terminal: launchers leave it to that and only wait for their ranks.
        for process in self._started:
            with suppress(OSError, psutil.Error):
                if os.getpgid(process.pid) == os.getpgrp():
                    process.send_signal(number)

    def _end_what_is_left(self) -> None:
        left = [*self._started, *_marked(self._mark)]
        if self._first == signal.SIGINT:  # they have it, too
            left = self._left(left)
        for process in left:
            with suppress(psutil.Error):
                process.terminate()
        left = self._left(left)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=_GONE_S)

    def _left(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        """Those that do not end in time, or before a second signal."""
        limit = time.monotonic() + _LEAVE_S
        left = processes
        while True:
            _, left = psutil.wait_procs(left, timeout=0)
            if not left or self._again or time.monotonic() > limit:
                return left
            self._take(0.05)

    def _tree(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            return []


def _marked(mark: str) -> list[psutil.Process]:
    """All processes with this mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


__all__ = ["MARK", "Ended", "to_its_end"]
