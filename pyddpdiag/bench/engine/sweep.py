"""Runs a sweep and keeps its results: starts or joins the ranks, collects, saves as it goes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyddpdiag.bench.engine.collect import Collected
from pyddpdiag.bench.engine.job import sweep_rank
from pyddpdiag.bench.engine.news import News
from pyddpdiag.bench.engine.settings import SweepSettings
from pyddpdiag.bench.engine.sittings import has_room, rounds_of_sittings
from pyddpdiag.bench.machine import machine_info
from pyddpdiag.bench.reading import read
from pyddpdiag.bench.results import Entry, save, sittings_of
from pyddpdiag.errors import PyddpdiagError, ResultError, ResultExistsError, ResultWriteError, UsageError
from pyddpdiag.train import interfaces, joined, launcher
from pyddpdiag.train.events import Event, Told
from pyddpdiag.train.rendezvous import Place

SAVE_EVERY_S: Final = 5.0


@dataclass
class Outcome:
    """A sweep that ended, in whatever way.

    Attributes:
        entries: all that was measured, with what an earlier part of a resumed sweep had.
        collected: this part alone.
        path: where the result file is; None if there was nothing to keep, or the rank writes none.
        error: what ended it early; None if it went to its end.
    """

    entries: list[Entry]
    collected: Collected
    path: Path | None = None
    error: BaseException | None = None


@dataclass
class Keeper:
    """The result file of a sweep while it is measured.

    Attributes:
        path: of the file.
        force: replace a file that is there.
        resume: go on with the sweep in a file that is there.
    """

    path: Path
    force: bool = False
    resume: bool = False
    before: list[Entry] = field(default_factory=list)
    _saved_at: float = 0.0

    def open(self, settings: SweepSettings) -> SweepSettings:
        """What of the sweep is left to do. Raises before anything is started if the file cannot be used."""
        if self.resume and self.path.exists():
            return self._left(settings)
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
        return settings

    def keep(self, collected: Collected, complete: bool) -> Path | None:
        """Writes what there is. If that fails, elsewhere, so that nothing is lost; the error says where."""
        entries = collected.entries(self.before)
        if not entries:
            return None
        left_out = {collected.label(case): why for case, why in collected.left_out.items()}
        sweep = {"complete": complete, "left_out": left_out, "rounds": collected.settings.rounds}
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
        """`keep`, at most every few seconds."""
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.keep(collected, complete=False)

    def _left(self, settings: SweepSettings) -> SweepSettings:
        found = read(self.path)
        here = machine_info()
        for key in ("node", "torch"):
            if found.machine.get(key) != here[key]:
                raise ResultError(
                    f"'{self.path}' was begun with another {'machine' if key == 'node' else key} "
                    f"({found.machine.get(key)!r}, here {here[key]!r}); rounds of both don't mix.",
                    hint="start anew with another --output.",
                )
        self.before = list(found.entries)
        collected = Collected(settings)
        collected.gathered = replace(collected.gathered, default_interface=_default_interface())
        done = {entry.name: len(entry.round_s) for entry in self.before}
        had = {i: done.get(collected.label(i), 0) for i in range(len(settings.cases))}
        left = [i for i, rounds in had.items() if rounds < settings.rounds]
        if not left:
            raise UsageError(
                f"the sweep in '{self.path}' is complete.",
                hint="--force measures it anew; --rounds adds rounds.",
            )
        counts = {entry.name: len(sittings_of(entry)) for entry in self.before}
        sat = min(counts.get(collected.label(i), 0) for i in left)
        return replace(
            settings,
            cases=tuple(settings.cases[i] for i in left),
            rounds=settings.rounds - min(had[i] for i in left),
            sittings=max(1, settings.sittings - sat),
        )


def run_sweep(
    settings: SweepSettings,
    keeper: Keeper | None,
    *,
    place: Place | None = None,
    on_news: Callable[[News], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measures on ranks of this machine, or as one rank of a world that others start with the same arguments.

    Args:
        settings: of the sweep; `trace_folder` is set here.
        keeper: of the result file; None keeps nothing.
        place: where to join; None launches the ranks here.
        on_news: told of everything that rank 0 tells.
        on_note: called with sentences for the user.

    Returns:
        The outcome; an error or interruption in the middle is in it, beside what was measured until then.

    Raises:
        UsageError, ResultError, ResultExistsError, ResultWriteError: before anything is started.
        RendezvousError: the ranks did not find together.
    """
    for name in settings.names:
        if place is None:
            interfaces.check((name,), "from --interface")
    folder = tempfile.mkdtemp(prefix="pyddpdiag-bench-")
    try:
        sittings = settings.sittings if place is None else 1
        settings = replace(settings, trace_folder=folder, launched=place is None, sittings=sittings)
        if keeper is not None:
            settings = keeper.open(settings)
        collected = Collected(settings)

        def take(event: Event) -> None:
            if isinstance(event, Told):
                collected.take(event.what)  # type: ignore[arg-type]
                on_news(event.what)  # type: ignore[arg-type]
                if keeper is not None:
                    keeper.keep_now_and_then(collected)

        error: BaseException | None = None
        try:
            plan = rounds_of_sittings(settings)
            for sitting, rounds in enumerate(plan):
                if sitting and not (collected.rounds and has_room(settings, time.time(), collected.start_s)):
                    break
                collected.begin_sitting(sitting)
                _sit(replace(settings, rounds=rounds, sittings=len(plan)), collected, place, take, on_note)
        except (PyddpdiagError, KeyboardInterrupt, SystemExit) as caught:
            if not collected.rounds:
                raise
            error = caught
        if error is None and not collected.rounds and (place is None or place.rank == 0):
            raise UsageError(
                f"the budget of {settings.budget_s:g} s was over before anything could be measured.",
                hint="starting the ranks takes part of it: give more, or fewer --ranks.",
            )
        collected.split()
        path = None
        if keeper is not None:
            path = keeper.keep(collected, complete=error is None)
        before: Sequence[Entry] = keeper.before if keeper is not None else ()
        return Outcome(collected.entries(before), collected, path, error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sit(
    settings: SweepSettings,
    collected: Collected,
    place: Place | None,
    take: Callable[[Event], None],
    on_note: Callable[[str], None],
) -> None:
    """One sitting, from the start of its ranks to their end."""
    settings = replace(settings, sitting=collected.sitting, began=collected.began)
    if place is not None:
        joined.join(replace(settings, interfaces=settings.names), place, on_event=take, job=sweep_rank)
        return
    if settings.sitting > 0:
        # The first one knew which cases there is time for, and said what there is to say.
        settings = replace(settings, skip=frozenset(range(len(settings.cases))) - set(collected.rounds))
        on_note = _nothing
    world = max(case.world_size for case in settings.cases)
    launcher.launch(settings, world, on_event=take, on_note=on_note, job=sweep_rank)


def _nothing(_: str) -> None:
    pass


def _default_interface() -> str:
    value, _ = interfaces.choose((), local=True)
    return value
