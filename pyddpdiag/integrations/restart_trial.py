"""Tries settings by starting the command again and again for a short time: today's and others in alternating starts.

Each round starts every setting once, in an order of its own, so that what drifts on the machine meets all of them. A
first start, which nothing counts, shows what can be tried and warms the machine's caches.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyddpdiag.analyse.advice import run_line
from pyddpdiag.analyse.tried import predicted_savings
from pyddpdiag.cures.options import Cures
from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.files import write_whole
from pyddpdiag.integrations.restart_choices import Seen, Setting, Wanted, seen, settings
from pyddpdiag.integrations.short_start import NEEDED, Limits, Measured, run_shortly
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.messages.shells import this_shell
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.paired import LOOKS, Interval, best_is_known, beyond, ratio_of_pairs
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.tried import AS_IT_IS, NAME, TrialState, Tried, TriedCure, tried_to_json
from pyddpdiag.model.words import count, listed, milliseconds, seconds
from pyddpdiag.output import say
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.run import open_run

LEAST_ROUNDS: Final = LOOKS[0]
MOST_ROUNDS: Final = LOOKS[-1]
_SLOWER: Final = 1.1
"""A setting that is slower by so much in two rounds, by the median, is left."""
_FAR_SLOWER: Final = 1.5
"""After one."""
_FIRST_STEP_S: Final = 180.0
"""For the first start to train its first step: imports, data, the ranks' meeting."""
_LEAST_START_S: Final = 60.0
"""For that of later starts, or ten times as long as the first one took: the machine may be busier then."""
_TRAIN_S: Final = (4.0, 40.0)
"""Least and most seconds of training in each start."""
_MOST_PART: Final = 0.25
"""Of the trial's time, what a start may take for the steps that are needed."""


@dataclass(frozen=True)
class Asked:
    """What a trial is asked for.

    Attributes:
        command, start: as in `recorded_command.run`.
        today: what is applied today.
        wanted: the cures to try.
        folder: of the trial; each start has one of its own below it.
        limit_s: of the whole trial.
        seed: of the order of starts.
    """

    command: Sequence[str]
    start: Start | None
    today: Cures
    wanted: Sequence[Wanted]
    folder: Path
    limit_s: float
    seed: int = 0


@dataclass(eq=False)
class _Row:
    """One setting: what its starts have shown, by round."""

    setting: Setting
    shown: dict[int, Measured] = field(default_factory=dict)
    left: str = ""

    @property
    def steps_s(self) -> dict[int, float]:
        return {number: each.step_s for number, each in self.shown.items() if each.step_s is not None}


class RestartTrial:
    """A trial by starts. `run` does it; `tried` is how it stands."""

    def __init__(self, asked: Asked, say_line: Callable[[str], None] | None = None) -> None:
        self._asked = asked
        self._say = say_line or (lambda text: say(f"pyddpdiag try: {text}", sys.stderr))
        self._today = _Row(Setting(AS_IT_IS, asked.today))
        self._rows: list[_Row] = []
        self._state: TrialState = "running"
        self._why = ""
        self._now = ""
        self._best = ""
        self._number = 0
        self._until_s = 0.0
        self._start_s = _FIRST_STEP_S
        self._train_s = _TRAIN_S[0]
        self._first: RunReport | None = None
        self.signal_number = 0
        """Of a signal to us, which ended it; 0: none did."""

    def run(self) -> Tried:
        """Tries until the best is known, or the time is over.

        Raises:
            UsageError: there is no such program.
            PyddpdiagError: its result cannot be written.
        """
        self._until_s = time.monotonic() + self._asked.limit_s
        if self._look():
            self._rounds()
        self._now = ""
        self._write()
        return self.tried()

    def _look(self) -> bool:
        """The first start, which says what can be tried; whether there is anything."""
        began_s = time.monotonic()
        self._say("a first start shows what can be tried.")
        first = self._started(self._today, "look")
        if self.signal_number:
            self._end("interrupted")
            return False
        if first.why or first.report is None:
            self._end("failed", first.why)
            return False
        self._first = first.report
        try:
            run = open_run(choose_attempt(first.folder)[0])
        except PyddpdiagError as error:
            self._end("failed", error.message)
            return False
        found = seen([rank.sidecar for rank in run.ranks])
        self._size(found, time.monotonic() - began_s)
        chosen, notes = settings(self._asked.wanted, self._asked.today, found)
        for note in notes:
            self._say(note)
        self._rows = [_Row(setting) for setting in chosen]
        if not chosen:
            self._end("decided", " ".join(notes).rstrip("."))
            return False
        self._plan(time.monotonic() - began_s, first.step_s or 0.0)
        return True

    def _size(self, found: Seen, took_s: float) -> None:
        self._start_s = max(_LEAST_START_S, 10 * took_s)

    def _plan(self, took_s: float, step_s: float) -> None:
        """How long each start may train, so that the rounds fit into the time."""
        least_s = max(_TRAIN_S[0], NEEDED * step_s)
        settings_ = len(self._rows) + 1
        each_s = max(0.0, self._until_s - time.monotonic()) / (LEAST_ROUNDS * settings_)
        before_s = max(0.0, took_s - least_s)
        self._train_s = max(least_s, min(each_s - before_s, _TRAIN_S[1]))
        needed_s = LEAST_ROUNDS * settings_ * (before_s + least_s)
        self._say(
            f"{listed([AS_IT_IS, *(row.setting.name for row in self._rows)], 16)}: {LEAST_ROUNDS} rounds or more, "
            f"each start takes about {seconds(before_s + max(least_s, min(self._train_s, 6.0)))}."
        )
        if needed_s > self._until_s - time.monotonic():
            self._say(
                f"{LEAST_ROUNDS} rounds need about {needed_s / 60:.1f} minutes, and fewer are left: give more by "
                "--minutes, or name fewer cures by --cures."
            )

    def _rounds(self) -> None:
        order = random.Random(self._asked.seed)
        for number in range(1, MOST_ROUNDS + 1):
            going = [self._today, *(row for row in self._rows if not row.left)]
            for row in order.sample(going, len(going)):
                if time.monotonic() > self._until_s:
                    self._end("time_over")
                    return
                if not self._measure(row, number):
                    return
            self._judge(number)
            self._write()
            if all(row.left for row in self._rows):
                self._end("decided")
                return
            if number in LOOKS and self._is_known():
                self._end("decided")
                return
        self._end("time_over")

    def _measure(self, row: _Row, number: int) -> bool:
        """One start; whether the trial goes on."""
        self._now = "" if row is self._today else row.setting.name
        self._write()
        shown = self._started(row, f"round-{number:02d}")
        if self.signal_number:
            self._end("interrupted")
            return False
        row.shown[number] = shown
        if not shown.why and shown.step_s is not None:
            exposed = "" if shown.exposed_s is None else f", {milliseconds(shown.exposed_s * 1e3)} exposed"
            self._say(
                f"round {number}, {row.setting.name}: {milliseconds(shown.step_s * 1e3)} per step"
                f"{exposed} ({count(shown.steps, 'step')})."
            )
            return True
        if row is self._today:
            if number == 1 or number - 1 not in row.steps_s:
                self._end("failed", f"with the setting as it is, {shown.why}")
                return False
            self._say(f"round {number} does not count: with the setting as it is, {shown.why}.")
            return True
        row.left = shown.why
        self._say(f"{row.setting.name} is left: {shown.why}.")
        return True

    def _started(self, row: _Row, name: str) -> Measured:
        asked = self._asked
        self._number += 1
        slug = "".join(c if c.isalnum() else "-" for c in row.setting.name)[:40]
        folder = asked.folder / f"start-{self._number:03d}-{name}-{slug}"
        limits = Limits(self._start_s, self._train_s, _MOST_PART * asked.limit_s)
        shown = run_shortly(asked.command, folder, row.setting.cures, asked.start, limits)
        self.signal_number = self.signal_number or shown.signal_number
        return shown

    def _judge(self, number: int) -> None:
        """Leaves what is surely slower."""
        for row in self._rows:
            ratios = self._ratios(row)
            if row.left or not ratios:
                continue
            limit = _FAR_SLOWER if number == 1 else _SLOWER
            if (middle := statistics.median(ratios)) > limit:
                row.left = f"its step takes {middle:.2f} of what it is"
                self._say(f"{row.setting.name} is left: {row.left}.")

    def _ratios(self, row: _Row) -> list[float]:
        """Of its step to today's, round by round."""
        today = self._today.steps_s
        return [step / today[number] for number, step in row.steps_s.items() if number in today]

    def _interval(self, row: _Row) -> Interval | None:
        ratios = self._ratios(row)
        # All that are tried, also those that were left since: each had its chance to look faster.
        return ratio_of_pairs(ratios, beyond(len(ratios), len(self._rows)))

    def _is_known(self) -> bool:
        intervals = [self._interval(row) for row in self._rows if not row.left]
        return best_is_known([each for each in intervals if each is not None])

    def _end(self, state: TrialState, why: str = "") -> None:
        self._state, self._why, self._now = state, why, ""
        faster = [cure for cure in self._cures() if cure.is_faster]
        self._best = min(faster, key=lambda cure: cure.ratio or 1.0).name if faster else ""

    def _cures(self) -> list[TriedCure]:
        return [self._cure(row) for row in self._rows]

    def _cure(self, row: _Row) -> TriedCure:
        between = self._interval(row)
        steps, today = row.steps_s, self._today.steps_s
        exposed = [each.exposed_s for each in row.shown.values() if each.exposed_s is not None]
        ranks = self._first.world_size if self._first is not None else 1
        several = self._first is not None and len({rank.host for rank in self._first.ranks}) > 1
        middle = statistics.median(today.values()) * 1e3 if today else None
        cures = row.setting.cures
        predicted = predicted_savings(self._first.verdict.findings) if self._first is not None else {}
        new = {
            name: value for name, value in cures.options().items() if name not in self._asked.today.options()
        }
        return TriedCure(
            name=row.setting.name,
            options=cures.options(),
            rounds=len(self._ratios(row)),
            step_ms=statistics.median(steps.values()) * 1e3 if steps else None,
            ratio=between.middle if between is not None else None,
            ratio_low=between.low if between is not None else None,
            ratio_high=between.high if between is not None else None,
            saved_ms=(1 - between.middle) * middle if between is not None and middle is not None else None,
            exposed_ms=statistics.median(exposed) * 1e3 if exposed else None,
            same_bits=_same_bits(self._asked.today, cures, ranks, several_hosts=several),
            left=row.left,
            predicted_saved_ms=next((predicted[name] for name in new if name in predicted), None),
            line=self._line(cures),
        )

    def _line(self, cures: Cures) -> str:
        asked = self._asked
        start = asked.start.options() if asked.start is not None else {}
        return run_line(Launch(tuple(asked.command), start=start), cures.options(), this_shell())

    def tried(self) -> Tried:
        """How it stands."""
        today = self._cure(self._today)
        return Tried(
            way="restart",
            state=self._state,
            today=replace(today, ratio=None, ratio_low=None, ratio_high=None, saved_ms=None, line=""),
            cures=tuple(self._cures()),
            why=self._why,
            best=self._best,
            now=self._now,
            minutes=self._asked.limit_s / 60,
        )

    def _write(self) -> None:
        text = json.dumps(tried_to_json(self.tried()), indent=2, allow_nan=False)
        write_whole(self._asked.folder / NAME, text, force=True, option="--trace")


def _same_bits(today: Cures, cures: Cures, ranks: int, *, several_hosts: bool) -> bool:
    """Whether a setting trains to the same bits as today's."""
    new = [why for why in cures.changed_bits(ranks) if why not in today.changed_bits(ranks)]
    shares = cures.shared_memory != today.shared_memory and ranks > 2 and several_hosts
    layout = (cures.bucket_cap_mb, cures.bucket_cap_mb_list) != (
        today.bucket_cap_mb,
        today.bucket_cap_mb_list,
    )
    return not (new or shares or (layout and ranks > 2) or cures.compress != today.compress)


__all__ = ["LEAST_ROUNDS", "Asked", "RestartTrial"]
