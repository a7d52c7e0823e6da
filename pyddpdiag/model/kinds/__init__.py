"""The one table of kinds of findings: what checks, verdict, reports, page, commands and exports know of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds.failures import FAILURES
from pyddpdiag.model.kinds.kind import Family, Kind
from pyddpdiag.model.kinds.network import NETWORK
from pyddpdiag.model.kinds.ranks import RANKS
from pyddpdiag.model.kinds.settings import DEVICES, SETTINGS
from pyddpdiag.model.kinds.values import VALUES
from pyddpdiag.model.words import milliseconds, ranks, seconds

_FAMILIES: Final[dict[Family, tuple[Kind, ...]]] = {
    "failures": FAILURES,
    "values": VALUES,
    "ranks": RANKS,
    "network": NETWORK,
    "settings": SETTINGS,
    "devices": DEVICES,
}
KINDS: Final = {
    kind.name: replace(kind, family=family) for family, kinds in _FAMILIES.items() for kind in kinds
}
"""By name, in the order in which the report lists findings of equal weight."""


def kind_of(finding: Finding) -> Kind:
    """The row of a finding's kind; for one that has none, a row that says no more than its name."""
    return KINDS.get(finding.kind) or Kind(finding.kind)


def brief(finding: Finding) -> str:
    """What the finding says, in short, with what it costs."""
    kind = kind_of(finding)
    among = f"among {ranks(finding.among)}, " if finding.among else ""
    if kind.at_once:
        cost = "" if finding.cost_s is None else f" ({seconds(finding.cost_s)} of the run)"
    else:
        # Of no time, where findings before it explain all of that.
        cost = f" ({milliseconds(finding.cost_ms)} per step)" if finding.cost_ms else ""
    return f"{among}{kind.in_short(finding)}{cost}"


__all__ = ["KINDS", "Kind", "brief", "kind_of"]
