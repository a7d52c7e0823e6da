"""What `pyddpdiag run` and `try` say while their command runs and nothing trains, and how far a trial is."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyddpdiag.integrations import early_end
from pyddpdiag.integrations.early_end import Early
from pyddpdiag.model.tried import tried_from_json
from pyddpdiag.model.words import count, listed, seconds
from pyddpdiag.output import say

SAID_S: Final = 30.0
"""After so long without a pass of a DDP module it is said; the progress of a trial, so often."""

_LOOK_S: Final = 2.0


class Meanwhile:
    """Asked again and again while the command runs whether that is enough.

    Args:
        notes: the folder of the processes' notes.
        folder: of the run.
        limit_s: of a trial: after so long without a DDP module there is nothing to try; None: there is no trial.
        ends: the command is ended then (`--stop`). Otherwise it goes on: it may do anything that is worth its time.
    """

    def __init__(
        self, notes: Path, folder: Path, limit_s: float | None = None, *, ends: bool = False
    ) -> None:
        self._notes, self._folder, self._limit_s = notes, folder, limit_s
        self._ends = ends
        self._verb = "run" if limit_s is None else "try"
        self._begun_s = self._looked_s = self._said_s = time.monotonic()
        self._trains = False
        self.why = ""
        """Why there was nothing to try; empty: there was, or may still be."""

    def enough(self) -> bool:
        """Whether to end the command."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S or (self._trains and self._limit_s is None):
            return False
        self._looked_s = now_s
        early = early_end.read(self._notes)
        self._trains = self._trains or early.called or any(self._folder.glob("rank_*.ddptrace"))
        took_s, due = now_s - self._begun_s, now_s - self._said_s >= SAID_S
        if self._trains:
            self.why = ""
            if due:
                self._say(self._progress())
            return False
        if self._limit_s is not None and took_s >= self._limit_s and not early.made:
            if not self.why:
                then = "was ended" if self._ends else "goes on without a trial"
                self.why = (
                    f"no DistributedDataParallel module was made in {seconds(took_s)}: there was nothing to try, and "
                    f"the command {then}. Seen: {seen(early)}. If it takes longer to start: "
                    f"--minutes {max(1, round(3 * self._limit_s / 60))}."
                )
                if not self._ends:
                    self._say(self.why)
            return self._ends
        if due:
            self._say(f"no DDP pass in {seconds(took_s)}. Seen: {seen(early)}. Missing: {missing(early)}.")
        return False

    def _say(self, text: str) -> None:
        # A run says once what is missing; a trial, whose time passes, how far it is.
        self._said_s = time.monotonic() if self._limit_s is not None else float("inf")
        if text:
            with suppress(OSError):  # a terminal that hung up
                say(f"pyddpdiag {self._verb}: {text}", sys.stderr)

    def _progress(self) -> str:
        """How far the trial is, as the first rank notes it; empty: it has not begun, or is over."""
        for trace in sorted(self._folder.glob("rank_*.ddptrace"))[:1]:
            with suppress(OSError, ValueError, AttributeError):
                raw = json.loads(trace.with_suffix(".json").read_text(encoding="utf-8"))
                trial = tried_from_json(raw.get("trial"))
                if trial is not None and trial.state == "running" and trial.took_s:
                    rounds, on = count(len(trial.today.blocks), "round"), trial.now or "the setting as it was"
                    return (
                        f"{seconds(trial.took_s)} of {seconds(60 * trial.minutes)}, {rounds}; on now: {on}."
                    )
        return ""


def seen(early: Early) -> str:
    """What the processes below the command have noted, in words."""
    groups = f" ({', '.join(early.backends)})" if early.backends else ""
    return (
        f"{count(early.loaded, 'Python process', 'Python processes')} with torch, {early.groups} in a process "
        f"group{groups}, {early.made} with a DDP module, {early.stepped} whose optimizer has stepped"
    )


def missing(early: Early) -> str:
    """The first thing that a DDP pass over Gloo lacks."""
    if not early.loaded:
        return "a Python below the command that loads torch and heeds PYTHONPATH (python -I and -E do not)"
    if early.joining:
        are = f"{count(len(early.joining), 'process is', 'processes are')} in {listed(sorted({*early.joining}), 3)}"
        return f"a meeting of all ranks: {are}, waiting for others"
    if not early.groups:
        return "init_process_group(backend='gloo'); a script may still be loading its data"
    if not early.made:
        return "a DistributedDataParallel module around the model"
    return "a call of the DDP module itself: ddp(batch), and not ddp.module(batch)"
