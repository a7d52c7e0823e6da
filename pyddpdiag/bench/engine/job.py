"""The job of a sweep's ranks, which the launching process can hold without loading torch."""

from __future__ import annotations

from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.bench.engine.sittings import Sitting
from pyddpdiag.ranks.session import Session


def sit(plan: SweepPlan, sitting: Sitting, session: Session) -> None:
    """A job, once plan and sitting are bound to it; see `rank.sit`."""
    from pyddpdiag.bench.engine import rank

    rank.sit(plan, sitting, session)
