"""All checks, in the order in which the report lists findings of equal weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from pyddpdiag.analyse import checks
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.group_view import members
from pyddpdiag.analyse.partial import may_look, weakened
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import words
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import KINDS


def _checks() -> tuple[Check, ...]:
    """Those of each file of `checks`, in the order of the table of kinds."""
    found: list[Check] = []
    for each in iter_modules(checks.__path__):
        module = vars(import_module(f"{checks.__name__}.{each.name}"))
        found += module["CHECKS"] if "CHECKS" in module else [module["CHECK"]]
    return tuple(sorted(found, key=lambda check: list(KINDS).index(check.kinds[0])))


CHECKS: Final = _checks()

LEFT_OVER: Final = ("hot_line",)
"""Kinds known from the looks alone, which do not say why."""


def find(view: RunView, parts: Sequence[RunView]) -> list[Finding]:
    """The findings of all checks in a run, in the catalog's order.

    Args:
        view: of the run.
        parts: its sets of ranks that meet, from `group_view.parts`; checks that compare ranks' times look at each.
    """
    found = [(place, one) for place, one in _look(view, per_group=False)]
    for part in parts:
        found += [(place, _among(one, members(part))) for place, one in _look(part, per_group=True)]
    return _said_once([one for _, one in sorted(found, key=lambda each: each[0])])


def _look(view: RunView, *, per_group: bool) -> Iterator[tuple[int, Finding]]:
    """What the checks of one sort find, each with the check's place."""
    kinds: set[str] = set()
    for place, check in enumerate(CHECKS):
        if check.per_group != per_group or kinds & check.unless or not may_look(check, view.run):
            continue
        some = list(check.look(view))
        kinds |= {one.kind for one in some if one.severity != "note"}
        yield from ((place, weakened(one, check, view.run)) for one in some)


def _said_once(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without lines that only take time, where another finding says more of the same line or function."""
    said = {place for one in findings if one.kind not in LEFT_OVER for place in _places(one.where or "")}
    return [one for one in findings if one.kind not in LEFT_OVER or said.isdisjoint(_places(one.where or ""))]


def _places(where: str) -> set[str]:
    """Of `train.py:9 in load_labels` the line, and file and function, if it is in one."""
    line, _, function = where.partition(" in ")
    return {line, f"{line.rpartition(':')[0]} {function}" if function else line} - {""}


def _among(finding: Finding, ranks: tuple[int, ...]) -> Finding:
    """The finding, with the ranks that it is about."""
    if not ranks:
        return finding
    return replace(finding, among=ranks, message=f"among {words.ranks(ranks)}, {finding.message}")
