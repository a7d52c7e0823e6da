"""Sweeps of the engine of `pyddpdiag bench` as rows: one sweep's cases, or two runs of the same cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.row import Row
from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.compare.comparison import Pair
from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.bench.engine.sweep import run_sweep
from pyddpdiag.bench.intervals import ratio_in_pairs
from pyddpdiag.bench.results import Entry, ResultFile, stamped
from pyddpdiag.ranks.interfaces import loopback

RUNS = ("first", "second")
LOOPBACK = loopback() or ""


@dataclass(frozen=True)
class Swept:
    """The entry of every case that a sweep measured, and why it left the others out."""

    entries: Mapping[Case, Entry]
    left_out: Mapping[Case, str] = field(default_factory=dict)


def sweep(cases: Sequence[Case], rounds: int, launches: int) -> Swept:
    """One sweep over loopback; an error of a rank is the test's."""
    plan = SweepPlan(tuple(cases), (LOOPBACK,), rounds=rounds, launches=launches, timeout_s=300)
    outcome = run_sweep(plan, None)
    if outcome.error is not None:
        raise outcome.error
    by_name = {entry.name: entry for entry in outcome.entries}
    left_out = {cases[index]: why for index, why in outcome.collected.left_out.items()}
    entries = {
        case: by_name[outcome.collected.label(index)]
        for index, case in enumerate(cases)
        if case not in left_out
    }
    return Swept(entries, left_out)


def report_case(
    row: Row, group: str, swept: Swept, case: Case, bases: Sequence[Case], **extra_info: Any
) -> None:
    """Reports a case with the `extra_info` of a result file; skips one that the sweep left out.

    Args:
        bases: cases of the same sweep that this one is compared with, within a round.
        extra_info: more for the JSON.
    """
    if case in swept.left_out:
        pytest.skip(f"not measured: {swept.left_out[case]}")
    entry = swept.entries[case]
    others = [swept.entries[base] for base in bases]
    row.report(
        group,
        entry.round_s,
        ratio_to={other.name: ratio_in_pairs(entry.round_s, other.round_s) for other in others},
        **stamped(entry.extra_info, entry.round_s),
        **extra_info,
    )


def places(cases: Sequence[Case]) -> list[tuple[str, Case]]:
    """The rows of two runs: each case in the first and in the second."""
    return [(run, case) for case in cases for run in RUNS]


class TwoRuns:
    """The same cases in two separate runs, compared as `pyddpdiag compare` compares two files."""

    def __init__(self, runs: Mapping[str, Swept]) -> None:
        self._runs = runs
        self._pairs = {case: self._compared(case) for case in runs[RUNS[0]].entries}

    def _compared(self, case: Case) -> Pair:
        files = [ResultFile(f"{run}.json", {}, (self._runs[run].entries[case],)) for run in RUNS]
        [pair] = compare(files, with_article=False).pairs
        return pair

    def word(self, case: Case) -> str:
        """What the comparison says of the second run of a case."""
        return self._pairs[case].word

    def report(self, row: Row, place: tuple[str, Case], group: str, **extra_info: Any) -> list[str]:
        """Reports one case of one run; what the comparison says of each of the cases.

        Without the stamp of a result file: a file that holds a case twice is one that nobody can compare.
        """
        run, case = place
        pair = self._pairs[case]
        row.report(
            group,
            self._runs[run].entries[case].round_s,
            ratio_to={RUNS[0]: pair.ratio} if run != RUNS[0] else {},
            word=pair.word,
            **extra_info,
        )
        return [pair.word for pair in self._pairs.values()]
