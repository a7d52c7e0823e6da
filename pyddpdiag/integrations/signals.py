"""Signals to `pyddpdiag run` reach its command, and nothing that it started outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import psutil

from pyddpdiag.integrations.below import Below
from pyddpdiag.messages.exit_codes import ended as shown_end
from pyddpdiag.model.words import count, listed
from pyddpdiag.output import say
from pyddpdiag.ranks.interrupts import StopRequest, blocked, noted, stop_signals, wait_for_signal

# Whoever sends a signal to a process and to its group, as timeout(1) does, has sent one.
_ECHO_S = 0.5
_NOTE_S = 2.0
# For processes that the command left behind: to end by themselves or by the signal that they have, and then by SIGTERM.
_LEAVE_S = 5.0
_GONE_S = 10.0
_ROUNDS = 2
_POLL_S = 0.5
_LOOK_S = 0.05


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code, as a shell gives it.
        signal_number: of the first signal to us meanwhile; 0: there was none.
        signal_s: when that came, in seconds since 1970; 0: there was none.
        died_of: the signal to stop that ended the command, whoever sent it; 0: none did.
        enough: whether we ended it, since `enough` said so.
        left_s: when it ended, if it left processes that we had to end, in seconds since 1970; 0: it left none.
    """

    code: int
    signal_number: int
    signal_s: float = 0.0
    died_of: int = 0
    enough: bool = False
    left_s: float = 0.0


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
    # The command first, or it would inherit the mask.
    with (
        Below() as below,
        noted() as request,
        subprocess.Popen(
            command,
            env={**environ, **below.environment},
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
        ) as process,
        blocked(waited := _waited()),
    ):
        running = _Command(process, below, waited, request, enough)
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
        below: Below,
        waited: Collection[int],
        request: StopRequest,
        enough: Callable[[], bool] | None,
    ) -> None:
        self._process = process
        self._below = below
        self._waited = waited
        self._request = request
        self._enough = enough
        self._ended_by_us = False  # nobody else had sent a signal yet
        self._first = 0  # the first signal
        self._since = 0.0
        self._first_s = 0.0
        self._again = False  # a second one came
        self._left_s = 0.0
        self._theirs = 0  # a signal that came after we had ended the command ourselves

    def watch(self) -> Ended:
        """Until the command has ended, and all that it started."""
        said = False
        while self._process.poll() is None:
            self._take(_POLL_S)
            self._below.reap(self._process.pid)
            if not self._first and self._enough is not None and self._enough():
                self._ended_by_us = True
                self._stop(signal.SIGTERM, command_has_it=False)
            if self._again:
                self._kill()
            elif self._first and not (said or self._ended_by_us) and time.monotonic() - self._since > _NOTE_S:
                said = True
                with suppress(OSError):  # a terminal that hung up
                    say("pyddpdiag run: waits for the command to end; a second signal ends it.", sys.stderr)
        self._end_what_is_left()
        code = self._process.returncode
        died_of = -code if -code in self._waited else 0
        shown = code if code >= 0 else 128 - code
        if self._ended_by_us:
            return Ended(shown, self._theirs, self._first_s if self._theirs else 0.0, died_of, enough=True)
        return Ended(shown, self._first, self._first_s, died_of, left_s=self._left_s)

    def end(self) -> None:
        """Ends the command and all that it started, at once."""
        self._first = self._first or signal.SIGTERM
        self._again = True
        self._kill()
        self._end_what_is_left()

    def _kill(self) -> None:
        self._below.look()
        self._process.kill()
        self._process.wait()

    def _take(self, seconds: float) -> None:
        """Waits for a signal, or the end of a process, and passes the first signal on."""
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
        started = self._below.look()
        if not command_has_it:
            self._pass_on(number, started)

    def _next(self, seconds: float) -> tuple[int, bool] | None:
        """The next signal, and whether the command has it as well; None: none came in time."""
        number, self._request.signal_number = self._request.signal_number, 0
        can_wait = hasattr(signal, "sigtimedwait")
        if number:
            # Where nothing can be held back, on Windows, a console sends Ctrl-C to all its processes.
            return number, not can_wait
        if not can_wait:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return None
        came = wait_for_signal(self._waited, seconds)
        if came is None or came[0] == signal.SIGCHLD:
            return None
        # From the kernel and no process: a terminal, which sends it to all of its foreground.
        return came[0], came[1] > 0

    def _pass_on(self, number: int, started: Collection[psutil.Process]) -> None:
        with suppress(OSError):
            self._process.send_signal(number)
            if hasattr(signal, "SIGCONT"):  # one that is stopped would only keep it
                self._process.send_signal(signal.SIGCONT)
        if number != signal.SIGINT:
            return
        # As from a terminal: launchers leave it to that and only wait for their ranks.
        for process in started:
            with suppress(OSError, psutil.Error):
                if process.pid != self._process.pid and os.getpgid(process.pid) == os.getpgrp():
                    process.send_signal(number)

    def _end_what_is_left(self) -> None:
        left = self._below.living()
        if not left:
            return
        if not self._first:
            ended_s = time.time()
            # Some helpers end just after the command.
            left = self._left(left)
            if not left:
                return
            self._left_s = ended_s
            pids = listed((process.pid for process in left), 16)
            with suppress(OSError):
                say(
                    f"pyddpdiag run: the command {shown_end(self._process.returncode)} and left "
                    f"{count(len(left), 'process', 'processes')} ({pids}), which pyddpdiag run ends now.",
                    sys.stderr,
                )
        elif self._first == signal.SIGINT:  # they have it, too
            left = self._left(left)
        for process in left:
            with suppress(psutil.Error):
                process.terminate()
        self._left(left)
        for _ in range(_ROUNDS):  # a launcher among them may have started others
            left = self._below.living()
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=_GONE_S)

    def _left(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        """Those that do not end in time, or before another signal."""
        limit = time.monotonic() + _LEAVE_S
        left, first = processes, self._first
        while True:
            _, left = psutil.wait_procs(left, timeout=0)
            if not left or self._again or self._first != first or time.monotonic() > limit:
                return left
            self._take(_LOOK_S)
