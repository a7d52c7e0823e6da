"""Findings compete for the time that they explain: each takes its own from the charges, and no time is told twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.charges import Charges
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.cube import CHARGED, NEEDED, PART_OF
from pyddpdiag.model.findings import Charge, Finding
from pyddpdiag.model.kinds import kind_of

SHOWN: Final = 0.01
"""Of all time: what is charged less is not shown."""


class Explained:
    """The charges of a run, and what findings have taken from them so far.

    Args:
        charges: of the run; they are used up.
    """

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._whole = charges.ms.sum(axis=0, dtype=np.float64)
        self._left = charges.ms
        self._taken: dict[str, Float64] = {}  # by kind, the most important first

    def by(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings in their order, each with what those before it have left of what it costs.

        Of what all ranks do at one line, one kind tells: the first, unless a later one is about much more time.
        Several findings of that kind are about different times.
        """
        at_line: dict[str, Finding] = {}
        found = []
        for one in findings:
            if one.where and one.rank is None and one.cost_s and one.severity != "error":
                first = at_line.setdefault(one.where, one)
                if first.kind != one.kind and (first.cost_s or 0.0) > MOST * one.cost_s:
                    continue
            found.append(self._limited(one))
        return found

    def charged(self, among: tuple[int, ...] = ()) -> tuple[Charge, ...]:
        """What the time went to, the most first; `among`: as in a finding."""
        ms, whole = self._whole, float(self._whole.sum())
        found = []
        for part, who in zip(*np.nonzero(ms >= SHOWN * whole), strict=True) if whole else ():
            by = {kind: float(took[part, who]) for kind, took in self._taken.items()}
            by = {kind: took for kind, took in by.items() if took >= SHOWN * whole}
            seconds = float(ms[part, who]) / 1e3
            found.append(
                Charge(
                    self._charges.ranks[who - 1] if who else None,
                    CHARGED[part],
                    seconds,
                    1e3 * seconds / whole,
                    sum(by.values()) / 1e3,
                    tuple(by),
                    among,
                )
            )
        return tuple(sorted(found, key=lambda each: -each.seconds))

    def _limited(self, finding: Finding) -> Finding:
        rows = len(self._charges.step)
        if finding.cost_ms is None or finding.severity == "error" or not rows:
            return finding
        at_once, wanted, taken = kind_of(finding).at_once, finding.cost_ms * rows, 0.0
        if at_once and finding.cost_s is not None:
            wanted = 1e3 * finding.cost_s
        for parts, who in _claims(finding, self._charges):
            taken += self._take(finding, parts, who, wanted - taken)
        if at_once:
            return finding  # most of it lies before the first step or after the last one
        share = taken / wanted if wanted > 0.0 else 1.0
        cost_s = None if finding.cost_s is None else finding.cost_s * share
        return replace(finding, cost_ms=taken / rows, cost_s=cost_s)

    def _take(self, finding: Finding, parts: Sequence[int], who: Sequence[int], wanted: float) -> float:
        """Take so many ms of what is left there, as much of everything; how many there were."""
        cells = np.ix_(self._rows(finding), parts, who)
        there = self._left[cells]
        available = float(there.sum(dtype=np.float64))
        taken = min(wanted, available)
        if taken > 0.0:
            took = self._taken.setdefault(finding.kind, np.zeros(self._left.shape[1:]))
            took[np.ix_(parts, who)] += there.sum(axis=0) * taken / available
            self._left[cells] = there * (1.0 - taken / available)
        return taken

    def _rows(self, finding: Finding) -> Sequence[int]:
        """The steps that it is about."""
        step = self._charges.step
        until = step[-1] if finding.until_step is None else finding.until_step
        since = step[0] if finding.since_step is None or finding.until_step is None else finding.since_step
        rows = np.flatnonzero((step >= since) & (step <= until))
        return rows.tolist() or range(len(step))


def _claims(finding: Finding, charges: Charges) -> Iterator[tuple[list[int], list[int]]]:
    """The parts that a finding is about, and who: first the part that it names, then the others."""
    kind, who = kind_of(finding), charges.who(None)
    named = PART_OF[finding.cause] if finding.cause else kind.part
    named = "between" if kind.at_once else named
    parts: tuple[str, ...] = CHARGED if not kind.part and not kind.explains else NEEDED
    if kind.explains == "exposed" or kind.part == "data_wait":
        parts, named = (kind.marks,), ""
        who = [0] if kind.explains else who
    elif kind.explains == "late" and not kind.slows_all:
        if finding.rank is not None:
            who = charges.who(finding.rank)
        elif kind.part == "late" and len(who) > 2:
            who = who[1:]
    if named in CHARGED:
        yield [CHARGED.index(named)], who
    yield [CHARGED.index(part) for part in parts], who
