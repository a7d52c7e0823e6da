"""Kinds about runs that end, fail or stand still."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.kinds.kind import Kind

_ERROR: Final = ("error",)
_GONE: Final = ("node_lost", "rank_lost", "rank_stopped")
_STUCK: Final = ("rank_stuck", "rank_behind", "transport_stalled")
_FOLLOWS: Final = ("rank_lost", *_STUCK, "operation_failed")
"""Where ranks do different things, others fail or wait, and the one that Gloo hits may be innocent."""

FAILURES: Final = (
    Kind(
        "interrupted",
        ("error", "note"),
        "somebody ended {ranks} from outside",
        end="ended",
        leads_to=("operation_failed",),
    ),
    # The rank that others wait for comes before what the others report.
    Kind(
        "node_lost",
        _ERROR,
        "the machine of {ranks} was lost",
        many="several ranks",
        end="ended",
        leads_to=("rank_lost", "operation_failed"),
    ),
    Kind(
        "rank_lost",
        ("error", "note"),
        "{ranks} ended",
        many="several ranks",
        end="ended",
        leads_to=("operation_failed",),
    ),
    # Only a look at a run that still goes on tells that (`live/judge.py`).
    Kind("rank_absent", _ERROR, "{ranks} has no trace", many="a rank", end="ended"),
    Kind("rank_stopped", _ERROR, "{ranks} is stopped", many="a rank", end="ended"),
    Kind(
        "rank_stuck",
        _ERROR,
        "the others wait for {ranks}, stuck in code of the script",
        many="several ranks",
        end="stuck",
        explained_by=_GONE,
    ),
    Kind(
        "rank_behind",
        _ERROR,
        "the others wait for {ranks}, which never began that operation",
        many="several ranks",
        end="stuck",
        explained_by=_GONE,
    ),
    Kind(
        "transport_stalled",
        _ERROR,
        "the transfer stands still",
        end="stuck",
        explained_by=_GONE,
        leads_to=("operation_failed",),
    ),
    Kind(
        "operation_failed",
        _ERROR,
        "operations failed{when}",
        end="failed",
        unless_led="; which rank caused it is unknown",
    ),
    Kind(
        "mismatched_all_reduce",
        _ERROR,
        "{ranks} called something else than the others{when}",
        many="some rank",
        end="failed",
        leads_to=_FOLLOWS,
    ),
    Kind(
        "world_size_differs",
        _ERROR,
        "the ranks disagree about the world size",
        end="failed",
        leads_to=_FOLLOWS,
    ),
    Kind(
        "fewer_all_reduces",
        _ERROR,
        "{ranks} made fewer all-reduces than the others",
        leads_to=("mismatched_all_reduce", *_FOLLOWS),
        leads_from="medium",
    ),
    Kind(
        "operations_in_flight",
        ("warning", "note"),
        "operations had begun and not ended",
        explained_by=(*_GONE, *_STUCK),
    ),
)
