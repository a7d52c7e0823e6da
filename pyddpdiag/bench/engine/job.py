"""The job of a sweep's ranks, by a name that the launching process can hold without loading torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyddpdiag.train.loop import Session


def sweep_rank(session: Session) -> Any:
    """See `rank.sweep_rank`."""
    from pyddpdiag.bench.engine import rank

    return rank.sweep_rank(session)
