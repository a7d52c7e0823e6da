"""Which way the buckets of process groups took, in words: for the text and for the page."""

from __future__ import annotations

from pyddpdiag.model.rows import GroupStats
from pyddpdiag.model.words import percent, ranks
from pyddpdiag.output import clean


def path_in_words(group: GroupStats) -> str:
    """The way of one group's buckets, and why."""
    if group.shared_buckets:
        some = "" if group.shared_buckets == group.buckets else f"{group.shared_buckets} of {group.buckets} "
        return f"{some}in shared memory" + _split(group)
    if group.shared_memory == "used":
        return "over Gloo, though the ranks share memory"
    return f"over Gloo: {clean(group.shared_memory)}" if group.shared_memory else "over Gloo"


def paths_in_words(groups: tuple[GroupStats, ...]) -> str:
    """One line about the groups for which somebody asked for shared memory; empty if nobody did."""
    asked = [group for group in groups if group.shared_memory or group.shared_buckets]
    return "; ".join(
        ("Buckets" if len(groups) == 1 else f"Buckets of {ranks(list(group.ranks))}")
        + f" {path_in_words(group)}"
        for group in asked
    )


def _split(group: GroupStats) -> str:
    if group.waiting_fraction is None or group.summing_fraction is None:
        return ""
    return f" ({percent(group.waiting_fraction)} of their time waiting, {percent(group.summing_fraction)} summing)"
