"""How far off `pyddpdiag plan` is: steps planned from a run with DDP's own layout, and the same steps measured.

Run: PYTHONPATH=tests python benchmarks/plan_error.py. All layouts take turns in the same ranks. Prints tables in
Markdown. Links between hosts are network namespaces and take root on Linux; loopback is measured everywhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from harness.layouts import HALF, MODELS, RECORDED, SHARED, Turns, train_layouts
from support.links import why_not

from pyddpdiag.analyse.view import RunView
from pyddpdiag.plan.read import plan_folder
from pyddpdiag.plan.recorded import Rows
from pyddpdiag.plan.settings import Plan, Row
from pyddpdiag.trace.run import open_run

CAPS_MB = (0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 100.0)
LINKS: tuple[int | None, ...] = (None, 1000, 150)
"""In Mbit/s; None is loopback."""
TOLERATED = 0.05
"""A recommended layout may take so much more than the best one."""


@dataclass(frozen=True)
class Answer:
    """One planned step, in ms, and what it took: `low` to `high` is the plan's interval."""

    model: str
    link: str
    ranks: int
    setting: str
    planned: float | None
    low: float | None
    high: float | None
    measured: float
    recorded: float
    why: str = ""

    @property
    def error(self) -> float | None:
        """The planned step over the measured one, less 1."""
        return None if self.planned is None else self.planned / self.measured - 1


def link_name(mbit: int | None) -> str:
    """For people."""
    return "loopback" if mbit is None else f"{mbit} Mbit/s"


def _step(folder: Path) -> float:
    """The median of a run's steps, from the end of one to the end of the next, as plan counts them."""
    return float(np.median(Rows(RunView(open_run(folder))).step))


def layouts(model: str, mbit: int | None, rounds: int, folder: Path) -> list[Answer]:
    """Each layout planned from a run with DDP's own, and measured, with 2 ranks."""
    _train(Turns(model, 2, CAPS_MB, rounds=rounds), folder, mbit)
    found = plan_folder(folder / RECORDED, bucket_cap_mb=",".join(f"{cap:g}" for cap in CAPS_MB))
    return [
        _answer(
            (model, link_name(mbit), 2, f"{cap:g} MiB"),
            found,
            lambda row, cap=cap: row.bucket_cap_mb == cap,
            folder / f"{cap:g}",
            folder / RECORDED,
        )
        for cap in CAPS_MB
    ]


def four_ranks(model: str, mbit: int, rounds: int, folder: Path) -> Answer:
    """The step of 4 ranks planned from a run of 2. Two ranks share a core in both, so that compute is the same."""
    for name, cores in (("two", (0, 0)), ("four", (0, 0, 1, 1))):
        _train(Turns(model, len(cores), (), rounds=rounds, cores=cores), folder / name, mbit)
    two, four = folder / "two" / RECORDED, folder / "four" / RECORDED
    found = plan_folder(two, ranks="4")
    return _answer((model, link_name(mbit), 4, "DDP's own"), found, lambda row: row.ranks == 4, four, two)


def other_path(model: str, mbit: int | None, rounds: int, folder: Path) -> Answer:
    """16 bits over a link, and shared memory on one machine."""
    path: Literal["bf16", "shared memory"] = SHARED if mbit is None else HALF
    _train(Turns(model, 2, (), rounds=rounds, half=mbit is not None, shared=mbit is None), folder, mbit)
    found = plan_folder(folder / RECORDED, paths=[path])
    which = (model, link_name(mbit), 2, path)
    return _answer(which, found, lambda row: row.path == path, folder / path, folder / RECORDED)


def _train(turns: Turns, folder: Path, mbit: int | None) -> None:
    """Unless an earlier start has."""
    done = folder / "done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        train_layouts(turns, folder, mbit)
        done.touch()


def _answer(
    which: tuple[str, str, int, str], found: Plan, asked: Callable[[Row], bool], measured: Path, base: Path
) -> Answer:
    row = next((row for row in found.rows if row.kind == "planned" and row.straggler and asked(row)), None)
    numbers = (row.step_ms, row.low_ms, row.high_ms) if row else (None, None, None)
    why = found.cannot_tell or (row.cannot_tell if row else "")
    return Answer(*which, *numbers, _step(measured), _step(base), why)


def summary(answers: Sequence[Answer]) -> str:
    """How large the errors are."""
    errors = [abs(one.error) for one in answers if one.error is not None]
    if not errors:
        return f"no answer to {len(answers)} questions"
    spans = [
        (one.low, one.measured, one.high) for one in answers if one.low is not None and one.high is not None
    ]
    inside = sum(low <= measured <= high for low, measured, high in spans)
    return (
        f"{len(errors)} of {len(answers)} answered; error {np.median(errors):.1%} in the median, "
        f"{np.percentile(errors, 90):.1%} at the 90th percentile, {max(errors):.1%} at most; "
        f"{inside} of {len(spans)} within the plan's interval"
    )


def advice(answers: Sequence[Answer]) -> tuple[str, float] | None:
    """The layout with the least planned step, DDP's own included, and its measured step over the best one's, less 1."""
    known = [one for one in answers if one.planned is not None]
    if not known:
        return None
    own = known[0].recorded
    best = min(known, key=lambda one: one.planned or 0.0)
    chosen, taken = (best.setting, best.measured) if (best.planned or 0.0) < own else ("DDP's own", own)
    return chosen, taken / min(own, *(one.measured for one in answers)) - 1


def _cell(one: Answer) -> str:
    return f"{one.measured:.4g}" + (f" ({one.error:+.0%})" if one.error is not None else " (no answer)")


def print_layouts(answers: Sequence[Answer]) -> None:
    """A row for each model and link, and what to make of them."""
    print(
        "| model, link | own layout | "
        + " | ".join(f"{cap:g} MiB" for cap in CAPS_MB)
        + " | chosen | dearer than the best |"
    )
    print("|---" * (len(CAPS_MB) + 4) + "|")
    dearer = []
    cells = dict.fromkeys((one.model, one.link) for one in answers)
    for model, link in cells:
        row = [one for one in answers if (one.model, one.link) == (model, link)]
        best = advice(row)
        if best is not None:
            dearer.append(best[1])
        shown = f"{best[0]} | {best[1]:.0%}" if best else f"{row[0].why} | "
        print(f"| {model}, {link} | {row[0].recorded:.4g} | {' | '.join(map(_cell, row))} | {shown} |")
    print(f"\nLayouts: {summary(answers)}.")
    for link in dict.fromkeys(one.link for one in answers):
        print(f"- {link}: {summary([one for one in answers if one.link == link])}.")
    good = sum(value <= TOLERATED for value in dearer)
    print(f"- The layout that is chosen is within {TOLERATED:.0%} of the best one in {good} of {len(cells)}.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all cells, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each layout; fewer on slow links")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument(
        "--folder", type=Path, help="where to keep the traces; what is there is not measured again"
    )
    parser.add_argument("--paths-only", action="store_true", help="16 bits and shared memory alone")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        _measure(
            options.folder or Path(scratch), options.models.split(","), options.rounds, not options.paths_only
        )


def _measure(folder: Path, models: Sequence[str], most: int, layouts_too: bool) -> None:
    found, more, paths = [], [], []
    missing = why_not()
    for mbit in LINKS if not missing else (None,):
        rounds = most if mbit is None or mbit >= 1000 else max(2, most // 2)
        for model in models:
            place = folder / f"{model}-{mbit or 'loopback'}"
            if layouts_too:
                found += layouts(model, mbit, rounds, place / "layouts")
                said = f"{model}, {link_name(mbit)}: {summary(found[-len(CAPS_MB) :])}"
                print(said, file=sys.stderr, flush=True)
            paths.append(other_path(model, mbit, 2 * rounds, place / "paths"))
            if mbit is not None and layouts_too:
                more.append(four_ranks(model, mbit, rounds, place / "ranks"))
    if layouts_too:
        print_layouts(found)
    print("\n| path | over Gloo, ms | on that path, measured (error of the plan) |\n|---|---|---|")
    for one in paths:
        print(f"| {one.model}, {one.link}, {one.setting} | {one.recorded:.4g} | {_cell(one)} {one.why} |")
    print(f"\nOther paths: {summary(paths)}.")
    if missing:
        print(f"\nNo links between hosts: {missing}.")
    elif layouts_too:
        print("\n| 4 ranks from 2 | 2 ranks | 4 ranks, measured (error of the plan) |\n|---|---|---|")
        for one in more:
            print(f"| {one.model}, {one.link} | {one.recorded:.4g} | {_cell(one)} {one.why} |")
        print(f"\n4 ranks from 2: {summary(more)}.")


if __name__ == "__main__":
    main()
