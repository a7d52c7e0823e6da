"""Tries settings by starting the command again and again for a short time: a block of the trial is a start.

A first start, which nothing counts, shows what can be tried and warms the machine's caches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyddpdiag.analyse.tried import predicted_savings, tried_of
from pyddpdiag.cures.options import Cures, from_options
from pyddpdiag.cures.trial_candidates import Run, Wanted, candidates
from pyddpdiag.cures.trial_schedule import Schedule
from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.integrations.short_start import NEEDED, Limits, Measured, run_shortly
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.messages.shells import this_shell
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.tried import AS_IT_IS, NAME, Block, TrialState, Tried, TriedCure, tried_to_json
from pyddpdiag.model.words import count, milliseconds
from pyddpdiag.output import say
from pyddpdiag.system.result_files import write_whole
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.run import open_run

_FIRST_STEP_S: Final = 180.0
"""For the first start to train its first step: imports, data, the ranks' meeting."""
_LEAST_START_S: Final = 60.0
"""For that of later starts, or ten times as long as the first one took: the machine may be busier then."""
_TRAIN_S: Final = (4.0, 40.0)
"""Least and most seconds of training in each start."""
_MOST_PART: Final = 0.25
"""Of the trial's time, what a start may take for the steps that are needed."""
_ROUNDS: Final = 4
"""Starts are so short that so many rounds of all settings fit, if they can be."""
_IN_VAIN: Final = 2
"""Starts in a row with the setting as it is that may tell nothing."""


class RestartTrial:
    """A trial by starts.

    Args:
        command, start: as in `recorded_command.run`.
        wanted: the cures to try; empty: the defaults.
        folder: of the trial; each start has one of its own below it.
        limit_s: of the whole trial.
    """

    def __init__(
        self,
        command: Sequence[str],
        start: Start | None,
        wanted: Sequence[Wanted],
        folder: Path,
        limit_s: float,
    ) -> None:
        self._command, self._start, self._wanted = command, start, wanted
        self._folder, self._limit_s = folder, limit_s
        self._tried = Tried("restart", "running", TriedCure(AS_IT_IS, same_bits=True), minutes=limit_s / 60)
        self._predicted: dict[str, float] = {}
        self._number = 0
        self._began_s = time.monotonic()
        self._limits = Limits(_FIRST_STEP_S, _TRAIN_S[0], _MOST_PART * limit_s)
        self.signal_number = 0
        """Of a signal to us, which ended it; 0: none did."""

    def run(self) -> Tried:
        """Tries until the best is known, or the time is over.

        Raises:
            UsageError: there is no such program.
            PyddpdiagError: its result cannot be written.
        """
        self._began_s = time.monotonic()
        schedule = self._look()
        if schedule is not None:
            self._race(schedule)
        self._write()
        return self._tried

    def _look(self) -> Schedule | None:
        """The first start, which says what can be tried; None: nothing can."""
        _say("a first start shows what can be tried.")
        first = self._started(AS_IT_IS, Cures(), "look")
        if self.signal_number or first.why or first.report is None:
            self._end("interrupted" if self.signal_number else "failed", first.why)
            return None
        took_s = time.monotonic() - self._began_s
        try:
            ranks = open_run(choose_attempt(first.folder)[0]).ranks
        except PyddpdiagError as error:
            self._end("failed", error.message)
            return None
        self._predicted = predicted_savings(first.report.verdict.findings)
        found = candidates(self._wanted, seen([rank.sidecar for rank in ranks]))
        chosen = tuple(each for each in found if not each.left)
        notes = [f"{each.name} is not tried: {each.left}." for each in found if each.left]
        for note in notes:
            _say(note)
        self._tried = replace(self._tried, cures=chosen)
        if not chosen:
            self._end("decided", " ".join(notes).rstrip("."))
            return None
        # So long that the rounds fit into the time.
        step_s = first.step_s or 0.0
        least_s = max(_TRAIN_S[0], NEEDED * step_s)
        each_s = (self._limit_s - took_s) / (_ROUNDS * (len(chosen) + 1)) - max(0.0, took_s - least_s)
        train_s = max(least_s, min(each_s, _TRAIN_S[1]))
        self._limits = Limits(max(_LEAST_START_S, 10 * took_s), train_s, self._limits.most_s)
        schedule = Schedule(self._tried, "best", 0, step_s, took_s)
        self._foretell(schedule)
        return schedule

    def _race(self, schedule: Schedule) -> None:
        in_vain = 0
        while True:
            turn = schedule.next(time.monotonic() - self._began_s)
            self._tried = replace(schedule.tried(), kept="")
            if turn.over:
                return
            self._write()
            name = turn.name or AS_IT_IS
            setting = next((each for each in self._tried.cures if each.name == name), self._tried.today)
            shown = self._started(name, from_options(setting.options), f"round-{schedule.round + 1:02d}")
            if self.signal_number:
                self._end("interrupted")
                return
            why = shown.why or ("" if shown.step_s else "no step could be measured")
            if shown.step_s and not why:
                block = Block(schedule.round, shown.step_s, shown.exposed_s, shown.steps)
                schedule.measured(turn.name, block)
                step = f"{milliseconds(shown.step_s * 1e3)} per step ({count(shown.steps, 'step')})"
                _say(f"round {schedule.round + 1}, {name}: {step}.")
                self._foretell(schedule)
            else:
                schedule.failed(turn.name, why)
                _say(f"round {schedule.round + 1}, {name}, does not count: {why}.")
            in_vain = 0 if turn.name or not why else in_vain + 1
            if in_vain and (in_vain == _IN_VAIN or not schedule.tried().today.blocks):
                self._tried = replace(schedule.tried(), now="")
                self._end("failed", f"with the setting as it is, {why}")
                return

    def _foretell(self, schedule: Schedule) -> None:
        if said := schedule.expected():
            _say(said)

    def _started(self, label: str, cures: Cures, name: str) -> Measured:
        self._number += 1
        slug = "".join(c if c.isalnum() else "-" for c in label)[:40]
        folder = self._folder / f"start-{self._number:03d}-{name}-{slug}"
        shown = run_shortly(self._command, folder, cures, self._start, self._limits)
        self.signal_number = self.signal_number or shown.signal_number
        return shown

    def _end(self, state: TrialState, why: str = "") -> None:
        self._tried = replace(self._tried, state=state, why=why, now="")

    def _write(self) -> None:
        start = self._start.options() if self._start is not None else {}
        launch = Launch(tuple(self._command), start=start)
        shown = tried_of(self._tried, launch, this_shell(), self._predicted)
        if self._tried.state != "running":
            self._tried = shown
        text = json.dumps(tried_to_json(shown), indent=2, allow_nan=False)
        write_whole(self._folder / NAME, text, force=True, option="--trace")


def seen(sidecars: Sequence[Sidecar]) -> Run:
    """What a start as it is shows of all ranks: what fits them."""
    hosts: dict[str, list[Sidecar]] = {}
    for one in sidecars:
        hosts.setdefault(one.host, []).append(one)
    fullest = max(hosts.values(), key=len)
    usable = [
        {name for name, face in one.interfaces.items() if face.up and face.addresses} for one in sidecars
    ]
    names = sorted(set.intersection(*usable)) if usable else []
    return Run(
        ranks=len(sidecars),
        one_host=len(hosts) == 1,
        here=len(fullest),
        cores=len({core for one in fullest for core in one.cores}),
        threads=max(one.torch_threads for one in fullest),
        interfaces=tuple(n for n in names if len(hosts) == 1 or not _is_loopback(sidecars[0], n)),
        in_use=sidecars[0].environment.get("GLOO_SOCKET_IFNAME", ""),
    )


def _is_loopback(sidecar: Sidecar, name: str) -> bool:
    return all(address.startswith(("127.", "::1/")) for address in sidecar.interfaces[name].addresses)


def _say(text: str) -> None:
    say(f"pyddpdiag try: {text}", sys.stderr)
