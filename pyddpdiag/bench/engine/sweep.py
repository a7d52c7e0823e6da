"""Runs a sweep: starts or joins the ranks of each launch, collects what they measure, and saves it meanwhile."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyddpdiag.bench.engine.collect import Collected, ResultWriter, whole
from pyddpdiag.bench.engine.plan import (
    Launch,
    News,
    Remaining,
    SweepPlan,
    has_room,
    rounds_of_launches,
    run_launch,
)
from pyddpdiag.bench.results import Entry
from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.join import join
from pyddpdiag.ranks.launch import Node, launch
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.session import Event, JobMessage, Note, Options


@dataclass
class Outcome:
    """How a sweep ended, and what it measured.

    Attributes:
        entries: all results, including those of the earlier part of a resumed sweep.
        collected: this part alone.
        path: the result file; None if there was nothing to save, or this rank saves nothing.
        error: what ended it early; None if it ran to its end.
    """

    entries: list[Entry]
    collected: Collected
    path: Path | None = None
    error: BaseException | None = None


def run_sweep(
    plan: SweepPlan,
    writer: ResultWriter | None,
    *,
    place: Place | None = None,
    on_news: Callable[[News], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Measures on ranks of this machine, or as one rank of a world that others start with the same arguments.

    Args:
        writer: saves the results; None saves nothing.
        place: where to join; None launches the ranks here. Joined ranks have one launch.
        on_news: called with everything that rank 0 reports.

    Returns:
        The outcome. It also holds an error or interruption on the way, beside what was measured until then.

    Raises:
        UsageError, ResultError, ResultExistsError, ResultWriteError: before anything is started.
        RendezvousError: the ranks did not find together.
    """
    if place is None and plan.names:
        interfaces.check(plan.names, "from --interface")
    remaining = whole(plan) if writer is None else writer.open(plan)
    collected = Collected(plan)

    def take(event: Event) -> None:
        if isinstance(event, JobMessage):
            news: News = event.what  # type: ignore[assignment]  # `run_launch` sends nothing else
            collected.take(news)
            on_news(news)
            if writer is not None:
                writer.keep_now_and_then(collected)
        elif isinstance(event, Note) and collected.launch == 0:
            on_note(event.text)

    folder = Path(tempfile.mkdtemp(prefix="pyddpdiag-bench-"))
    try:
        error: BaseException | None = None
        try:
            _measure(remaining, collected, folder, place, take)
        except (PyddpdiagError, KeyboardInterrupt, SystemExit) as caught:
            if not collected.rounds:
                raise
            error = caught
        if error is None and not collected.rounds and (place is None or place.rank == 0):
            seconds = 0.0 if plan.budget is None else plan.budget.seconds
            raise UsageError(
                f"the budget of {seconds:g} s was over before anything could be measured.",
                hint="starting the ranks takes part of it: give more, or fewer --nproc.",
            )
        collected.split(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    path = None if writer is None else writer.keep(collected, complete=error is None)
    before: Sequence[Entry] = () if writer is None else writer.before
    return Outcome(collected.entries(before), collected, path, error)


def _measure(
    remaining: Remaining,
    collected: Collected,
    folder: Path,
    place: Place | None,
    take: Callable[[Event], None],
) -> None:
    """Runs launches as long as there is time for another one."""
    plan = collected.plan
    rounds = rounds_of_launches(remaining) if place is None else [remaining.rounds]
    cases = remaining.cases
    for number, most in enumerate(rounds):
        if number > 0:
            if not (collected.rounds and has_room(plan, time.time(), collected.start_s)):
                return
            # The first launch has already decided, and reported, which cases there is time for.
            cases = tuple(case for case in cases if case in collected.rounds)
        collected.begin_launch(number)
        this = Launch(
            number=number,
            following=len(rounds) - number - 1,
            cases=cases,
            rounds=most,
            began=collected.began,
            folder=str(folder / str(number)),
            launched=place is None,
        )
        work = partial(run_launch, plan, this)
        if place is None:
            launch(work, Options(plan.timeout_s), Node(plan.world_size), on_event=take)
        else:
            join(work, Options(plan.timeout_s, plan.names, plan.agreed()), place, on_event=take)
