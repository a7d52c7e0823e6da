"""The trial of cures that took place in a run, and what the run's report expected of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from pyddpdiag.analyse.advice import run_line
from pyddpdiag.analyse.buckets import bucket_stats
from pyddpdiag.analyse.half_gain import half_gain_ms
from pyddpdiag.analyse.shared_gain import shared_gain_ms
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import Shell
from pyddpdiag.model import Finding, trial
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.run_options import PATH
from pyddpdiag.model.trial import TODAY, Trial
from pyddpdiag.model.tried import AS_IT_IS, TrialState, Tried, TriedCure

_STATES: Final[dict[trial.TrialState, TrialState]] = {
    "waiting": "running",
    "running": "running",
    "decided": "decided",
    "time over": "time_over",
    "failed": "failed",
    "ended early": "interrupted",
}


def predicted_savings(findings: Iterable[Finding]) -> dict[str, float]:
    """What a step would take less with a cure, in ms, by its option: what the findings' advice rests on."""
    found: dict[str, float] = {}
    for finding in findings:
        found = {**kind_of(finding).savings(finding), **found}
    return {option: saved for option, saved in found.items() if option}


def tried_in(view: RunView) -> Tried | None:
    """The trial in a run, as the lowest rank that knows of one noted it; None: there was none."""
    noted = next((one.trial for one in view.sidecars.values() if one.trial is not None), None)
    if noted is None:
        return None
    return tried_of(noted, view.advice.launch, view.advice.shell, _expected(view, noted))


def tried_of(noted: Trial, launch: Launch, shell: Shell, predicted: Mapping[str, float]) -> Tried:
    """A trial as rows of a report.

    Args:
        noted: by the ranks.
        launch: of the run.
        shell: to write lines for.
        predicted: ms per step that each option was expected to save.
    """
    steps = [block.step_s for block in noted.today.blocks if block.step_s is not None]
    waits = [block.exposed_s for block in noted.today.blocks if block.exposed_s is not None]
    best = "" if noted.best == TODAY else noted.best
    return Tried(
        way="in_run",
        state=_STATES[noted.state],
        today=TriedCure(
            AS_IT_IS,
            noted.today.options,
            rounds=len(steps),
            step_ms=median(steps) * 1e3 if steps else None,
            exposed_ms=median(waits) * 1e3 if waits else None,
            same_bits=True,
        ),
        cures=tuple(_row(cure, launch, shell, predicted) for cure in noted.cures),
        why=noted.why,
        best=best,
        kept="" if noted.kept == TODAY else noted.kept,
        now="" if noted.on == TODAY or noted.kept else noted.on,
        minutes=noted.limit_s / 60,
    )


def _row(cure: trial.TriedCure, launch: Launch, shell: Shell, predicted: Mapping[str, float]) -> TriedCure:
    result = cure.result
    expected = next((predicted[name] for name in cure.options if name in predicted), None)
    # Its options say all of how its buckets are summed.
    rest = {name: value for name, value in launch.cures.items() if name not in PATH}
    row = TriedCure(
        cure.name,
        cure.options,
        same_bits=cure.same_bits,
        left=cure.left,
        line=run_line(replace(launch, cures=rest), cure.options, shell),
    )
    if result is None:
        return row
    return TriedCure(
        **{
            **vars(row),
            "rounds": result.pairs,
            "predicted_saved_ms": expected,
            "step_ms": result.step_s * 1e3,
            "ratio": result.ratio,
            "ratio_low": result.low,
            "ratio_high": result.high,
            "saved_ms": result.saved_s * 1e3,
            "exposed_ms": None if result.exposed_s is None else result.exposed_s * 1e3,
        }
    )


def _expected(view: RunView, noted: Trial) -> dict[str, float]:
    """What shared memory and 16 bits were expected to save, from the steps with today's setting alone."""
    waits = [block.exposed_s for block in noted.today.blocks if block.exposed_s is not None]
    steps = np.zeros(len(view.occurrences), np.bool_)
    for block in noted.today.blocks:
        if block.last_step > block.first_step:
            steps |= (view.occurrences.step > block.first_step) & (view.occurrences.step < block.last_step)
    if not waits or not steps.any():
        return {}
    buckets = bucket_stats(view.run, view.occurrences, view.names, view.steps.left_out, steps)
    exposed, links = median(waits) * 1e3, view.links
    by_option = {"--compress": half_gain_ms(exposed, buckets, links)}
    if links and all(link.loopback for link in links):
        by_option["--shared-memory"] = shared_gain_ms(exposed, buckets)
    return {option: saved for option, saved in by_option.items() if saved is not None}


__all__ = ["predicted_savings", "tried_in", "tried_of"]
