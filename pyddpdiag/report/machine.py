"""The ranks' machines in a line: cores, load and memory."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.words import count, number, ranges
from pyddpdiag.output import clean

_HOSTS: Final = 2
"""So many machines are named; of more, those with a blamed rank first."""


def machines_line(report: RunReport) -> str:
    """Empty where nothing is known."""
    hosts: dict[str, list[RankStats]] = {}
    for rank in report.ranks:
        if rank.cores:
            hosts.setdefault(rank.host, []).append(rank)
    blamed = {finding.rank for finding in report.verdict.findings}
    first = sorted(hosts.values(), key=lambda ranks: not any(each.rank in blamed for each in ranks))
    said = "; ".join(_of_host(ranks) for ranks in first[:_HOSTS])
    more = len(first) - _HOSTS
    return said + (f"; {count(more, 'more machine')}" if more > 0 else "")


def _of_host(ranks: list[RankStats]) -> str:
    who = f"rank{'s' if len(ranks) > 1 else ''} {ranges([each.rank for each in ranks])}"
    host = clean(ranks[0].host or "?")
    parts = [f"Machine {host} with {who}: {_span([each.cores for each in ranks], 'core')}"]
    if all(each.threads for each in ranks):
        parts.append(_span([each.threads for each in ranks], "thread") + (" each" if len(ranks) > 1 else ""))
    loads = [each.load for each in ranks if each.load is not None]
    if loads:
        parts.append(f"load {number(max(loads))}")
    used = [each.memory_bytes / 1e9 for each in ranks if each.memory_bytes]
    if used:
        least, most = number(min(used)), number(max(used))
        each_of = least if least == most else f"{least} to {most}"
        parts.append(f"memory {each_of} of {number(ranks[0].machine_memory_bytes / 1e9)} GB")
    return ", ".join(parts)


def _span(values: list[int], noun: str) -> str:
    least, most = min(values), max(values)
    return count(most, noun) if least == most else f"{least} to {count(most, noun)}"
