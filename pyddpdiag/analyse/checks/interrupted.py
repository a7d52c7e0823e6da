"""Somebody ended the run from outside before anything went wrong: Ctrl-C, a scheduler, a container that stops."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.interruption import who_sends
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, ranks, verb

_MIND = "A rank failed at the same moment and left no note of it."


def _look(view: RunView) -> Iterator[Finding]:
    told = view.interruption
    if told is None:
        return
    where = f" in step {told.step}" if told.step is not None else ""
    evidence: dict[str, float | int | str | None] = {"signal": told.signal, "step": told.step}
    if not told.ranks:
        how = "Ctrl-C" if told.signal == "SIGINT" else told.signal
        yield Finding(
            kind="interrupted",
            severity="note",
            message=f"interrupted{where} ({how}).",
            confidence="high",
            since_step=told.step,
            evidence=evidence,
            change_mind=_MIND,
            advice="" if told.signal == "SIGINT" else who_sends(told.signal),
        )
        return
    ahead = f", {milliseconds(told.ahead_ms)} before the others" if told.ahead_ms else ""
    failed = {error.rank for error in view.errors.first} - set(told.ranks)
    after = f"; {ranks(sorted(failed))} then failed" if failed else ""
    yield Finding(
        kind="interrupted",
        severity="error",
        message=f"{ranks(told.ranks)} {verb(told.ranks, 'was', 'were')} ended by {told.signal}{where}{ahead}{after}.",
        confidence="high",
        rank=told.ranks[0] if len(told.ranks) == 1 else None,
        since_step=told.step,
        evidence={**evidence, "ahead_ms": told.ahead_ms, "others_failed": len(failed)},
        change_mind=_MIND,
        advice=who_sends(told.signal),
    )


CHECK = Check(
    {"interrupted": ("error", "note")}, _look, rests_on="records", family="failures", role="interrupted"
)
