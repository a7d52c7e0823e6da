"""The job of a sweep's ranks, which the launching process can hold without loading torch."""

from __future__ import annotations

from pyddpdiag.bench.engine.launches import Launch
from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.ranks.session import Session


def run_launch(plan: SweepPlan, launch: Launch, session: Session) -> None:
    """A job, once plan and launch are bound to it; see `rank.run_launch`."""
    from pyddpdiag.bench.engine import rank

    rank.run_launch(plan, launch, session)
