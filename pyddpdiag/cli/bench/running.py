"""Runs a sweep for a sub-command: progress, the result file, Ctrl-C and the closing words."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pyddpdiag.bench.engine.collect import ResultWriter
from pyddpdiag.bench.engine.plan import Built, LeftOut, Measured, News, SweepPlan
from pyddpdiag.bench.engine.sweep import Outcome, run_sweep
from pyddpdiag.bench.entries_table import print_entries
from pyddpdiag.bench.results import to_document
from pyddpdiag.cli.bench import options
from pyddpdiag.output import clean, say

if TYPE_CHECKING:
    from pyddpdiag.bench.cases import Case
    from pyddpdiag.ranks.rendezvous import Place


@contextmanager
def _bar(plan: SweepPlan) -> Iterator[Callable[[News], None]]:
    """A progress bar on standard error, if that is a terminal, over rounds or the budget's time; it takes the news."""
    console = Console(stderr=True)
    rounds = left_out = 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        refresh_per_second=2,  # the ranks need the processor
    ) as progress:
        task = progress.add_task("starting ranks", total=1.0)

        def show(news: News) -> None:
            nonlocal rounds, left_out
            rounds += isinstance(news, Measured)
            left_out += isinstance(news, LeftOut)
            done = 0.0
            if plan.rounds is not None:
                done = rounds / max(1, plan.rounds * (len(plan.cases) - left_out))
            if plan.budget is not None:
                done = max(done, plan.budget.fraction(time.time()))
            what = f"set up {plan.cases[news.case].label('')}" if isinstance(news, Built) else "measuring"
            progress.update(task, completed=min(1.0, done), description=clean(what))

        yield show


def sweep(cases: Sequence[Case], names: tuple[str, ...], given: Mapping[str, Any], started_s: float) -> None:
    """Runs a sub-command that took the options of `options.SWEEP`, begun at `started_s`, to its end.

    Raises:
        UsageError: the budget is no duration, there is nothing to resume, or the sweep cannot be run like this.
    """
    rounds, budget = options.limits(given["rounds"], given["budget"], started_s)
    plan = SweepPlan(
        cases=tuple(cases),
        names=names,
        rounds=rounds,
        launches=given["sittings"],
        budget=budget,
        timeout_s=given["timeout"],
    )
    path = options.output_path(given["output"], given["resume"])
    outcome = run(plan, ResultWriter(path, given["force"], given["resume"]))
    show(outcome, given["as_json"])
    finish(outcome)


def run(plan: SweepPlan, writer: ResultWriter | None, place: Place | None = None) -> Outcome:
    """Runs the sweep, and writes what a user should know to standard error.

    Raises:
        UsageError: the sweep cannot be run like this; and whatever else `run_sweep` raises.
    """
    with _bar(plan) as bar:
        outcome = run_sweep(
            plan,
            writer,
            place=place,
            on_news=bar,
            on_note=lambda text: say(text, sys.stderr),
        )
    if outcome.error is not None:
        kept = f"; what was measured is in {outcome.path}" if outcome.path else ""
        what = "Interrupted" if isinstance(outcome.error, (KeyboardInterrupt, SystemExit)) else "error"
        reason = f": {outcome.error}" if what == "error" else ""
        say(f"{what}{reason}{kept}.", sys.stderr)
        if outcome.path:
            say(f"  hint: go on with --resume --output {outcome.path}", sys.stderr)
    return outcome


def show(outcome: Outcome, as_json: bool) -> None:
    """Prints the results to standard output."""
    if as_json:
        say(json.dumps(to_document(outcome.entries), indent=1, allow_nan=False))
        return
    collected = outcome.collected
    left_out = {collected.label(case): why for case, why in collected.left_out.items()}
    print_entries(outcome.entries, sys.stdout, left_out)
    if outcome.path is not None and outcome.error is None:
        say(f"\nResult file: {outcome.path}")


def finish(outcome: Outcome) -> None:
    """Ends the command with the exit code that the outcome calls for."""
    if isinstance(outcome.error, KeyboardInterrupt):
        raise typer.Exit(130)
    if isinstance(outcome.error, SystemExit):
        raise outcome.error
    if outcome.error is not None:
        raise typer.Exit(2)
