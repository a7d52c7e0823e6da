"""Findings compete for the time that they explain: each takes its own from the charges, and no time is told twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.charges import Charges
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.charges import Charge
from pyddpdiag.model.cube import CHARGED, OWN_PARTS
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of

SHOWN: float = 0.01
"""Of all time: what is charged less is not shown."""


class Explained:
    """The charges of a run, and what findings have taken from them so far."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._left = charges.ms.astype(np.float64)
        self._taken: list[tuple[str, Float64]] = []

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

    def charged(self) -> tuple[Charge, ...]:
        """What the time went to, the most first."""
        ms, whole = self._charges.ms.sum(axis=0, dtype=np.float64), float(self._charges.rows.sum())
        found = []
        for part, who in zip(*np.nonzero(ms >= SHOWN * whole), strict=True) if whole else ():
            by = {kind: float(took[part, who]) for kind, took in self._taken}
            # At least what is worth a line of its own.
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
                )
            )
        return tuple(sorted(found, key=lambda each: -each.seconds))

    def _limited(self, finding: Finding) -> Finding:
        rows = len(self._charges.step)
        if finding.cost_ms is None or finding.severity == "error" or not rows:
            return finding
        cells = np.ix_(self._rows(finding), *_claimed(finding, self._charges))
        there = self._left[cells]
        wanted, available = finding.cost_ms * rows, float(there.sum())
        taken = min(wanted, available)
        if taken > 0.0:
            took = np.zeros(self._left.shape[1:])
            took[cells[1][0], cells[2][0]] = there.sum(axis=0) * taken / available
            self._taken.append((finding.kind, took))
            self._left[cells] = there * (1.0 - taken / available)
        share = taken / wanted if wanted > 0.0 else 1.0
        cost_s = None if finding.cost_s is None else finding.cost_s * share
        return replace(finding, cost_ms=taken / rows, cost_s=cost_s)

    def _rows(self, finding: Finding) -> Sequence[int]:
        """The steps that it is about."""
        step = self._charges.step
        until = step[-1] if finding.until_step is None else finding.until_step
        since = step[0] if finding.since_step is None or finding.until_step is None else finding.since_step
        rows = np.flatnonzero((step >= since) & (step <= until))
        return rows.tolist() or range(len(step))


def _claimed(finding: Finding, charges: Charges) -> tuple[list[int], list[int]]:
    """The parts and whom a finding is about."""
    kind = kind_of(finding)
    everybody = charges.who(None)
    if kind.explains == "exposed":
        return [CHARGED.index("communication")], [0]
    if kind.part == "data_wait":
        return [CHARGED.index("data_wait")], everybody
    if kind.explains == "late" and not kind.slows_all:
        own = [CHARGED.index(part) for part in OWN_PARTS]
        if finding.rank is not None:
            return own, charges.who(finding.rank)
        if kind.part == "late":
            return own, everybody[1:]
    return list(range(len(CHARGED))), everybody
