"""Operations that had begun and not ended; in a live run there are some at any moment."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, ranks


def _look(view: RunView) -> Iterator[Finding]:
    operations = view.in_flight.first
    if not operations or view.interruption is not None:
        return
    still = {rank.rank for rank in view.ranks if not rank.closed}
    waiting = sorted({operation.rank for operation in operations})
    longest = max(operations, key=lambda operation: operation.open_ms)
    running = any(operation.rank in still for operation in operations)
    yield Finding(
        kind="operations_in_flight",
        severity="note" if running else "warning",
        message=f"{count(view.in_flight.total, 'operation')} had begun and not ended on {ranks(waiting)}; the "
        f"longest, {longest.kind} {longest.what} of step {longest.step}, for at least {longest.open_ms:.0f} ms.",
        confidence="certain",
        rank=waiting[0] if len(waiting) == 1 else None,
        bucket=longest.what if longest.kind == "bucket" else None,
        since_step=longest.step,
        evidence={"operations": view.in_flight.total, "open_ms": longest.open_ms},
        change_mind="The run goes on: read it again." if running else "",
        advice="",
    )


CHECK = Check(("operations_in_flight",), _look, rests_on="waits")
