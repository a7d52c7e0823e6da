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
        "failures",
        ("error", "note"),
        "somebody ended {ranks} from outside",
        end="ended",
        leads_to=("operation_failed",),
    ),
    # The rank that others wait for comes before what the others report.
    Kind(
        "node_lost",
        "failures",
        _ERROR,
        "the machine of {ranks} was lost",
        many="several ranks",
        end="ended",
        leads_to=("rank_lost", "operation_failed"),
    ),
    Kind(
        "rank_lost",
        "failures",
        ("error", "note"),
        "{ranks} ended",
        many="several ranks",
        end="ended",
        leads_to=("operation_failed",),
    ),
    # Only a look at a run that still goes on tells that (`live/judge.py`).
    Kind("rank_absent", "failures", _ERROR, "{ranks} has no trace", many="a rank", end="ended"),
    Kind("rank_stopped", "failures", _ERROR, "{ranks} is stopped", many="a rank", end="ended"),
    Kind(
        "rank_stuck",
        "failures",
        _ERROR,
        "the others wait for {ranks}, stuck in code of the script",
        many="several ranks",
        end="stuck",
        explained_by=_GONE,
    ),
    Kind(
        "rank_behind",
        "failures",
        _ERROR,
        "the others wait for {ranks}, which never began that operation",
        many="several ranks",
        end="stuck",
        explained_by=_GONE,
    ),
    Kind(
        "transport_stalled",
        "failures",
        _ERROR,
        "the transfer stands still",
        end="stuck",
        explained_by=_GONE,
    ),
    Kind("operation_failed", "failures", _ERROR, "operations failed{when}", end="failed"),
    Kind(
        "mismatched_all_reduce",
        "failures",
        _ERROR,
        "{ranks} called something else than the others{when}",
        many="some rank",
        end="failed",
        leads_to=_FOLLOWS,
    ),
    Kind(
        "world_size_differs",
        "failures",
        _ERROR,
        "the ranks disagree about the world size",
        end="failed",
        leads_to=_FOLLOWS,
    ),
    Kind(
        "fewer_all_reduces",
        "failures",
        _ERROR,
        "{ranks} made fewer all-reduces than the others",
        leads_to=("mismatched_all_reduce", *_FOLLOWS),
        leads_from="medium",
    ),
    Kind(
        "operations_in_flight",
        "failures",
        ("warning", "note"),
        "operations had begun and not ended",
        explained_by=(*_GONE, *_STUCK),
    ),
)
