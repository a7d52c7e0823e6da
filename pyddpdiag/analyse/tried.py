"""The trial of cures that took place in a run, and what the run's report expected of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

import numpy as np

from pyddpdiag.analyse.advice import run_line
from pyddpdiag.analyse.buckets import bucket_stats
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wire_fit import half_gain_ms, shared_gain_ms
from pyddpdiag.messages.shells import Shell
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.run_options import PATH
from pyddpdiag.model.tried import Tried, TriedCure


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


def tried_of(noted: Tried, launch: Launch, shell: Shell, predicted: Mapping[str, float]) -> Tried:
    """A trial as a report shows it: with what was expected of each cure, and its line, and without its blocks.

    Args:
        launch: of the run, with the cures that a trial leaves as they are.
        predicted: ms per step that each option was expected to save.
    """
    # Options of a cure say all of how its buckets are summed.
    rest = replace(launch, cures={name: value for name, value in launch.cures.items() if name not in PATH})

    def shown(cure: TriedCure) -> TriedCure:
        new = [name for name in cure.options if name not in noted.today.options]
        expected = next((predicted[name] for name in new if name in predicted), None)
        line = run_line(rest, cure.options, shell)
        return replace(cure, line=line, predicted_saved_ms=expected if cure.rounds else None, blocks=())

    return replace(noted, today=replace(noted.today, blocks=()), cures=tuple(map(shown, noted.cures)))


def _expected(view: RunView, noted: Tried) -> dict[str, float]:
    """What shared memory and 16 bits were expected to save, from the steps with today's setting alone."""
    waits = [block.exposed_s for block in noted.today.blocks if block.exposed_s is not None]
    steps = np.zeros(len(view.occurrences), np.bool_)
    for block in noted.today.blocks:
        if block.last_step > block.first_step:
            steps |= (view.occurrences.step > block.first_step) & (view.occurrences.step < block.last_step)
    if not waits or not steps.any():
        return {}
    buckets = bucket_stats(view.run, view.occurrences, view.names, view.steps.left_out, steps)
    exposed = median(waits) * 1e3
    by_option = {"--compress": half_gain_ms(exposed, buckets, view.links)}
    if view.on_loopback:
        by_option["--shared-memory"] = shared_gain_ms(exposed, buckets)
    return {option: saved for option, saved in by_option.items() if saved is not None}
