"""Somebody ended the run from outside before anything went wrong: Ctrl-C, a scheduler, a container that stops."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.interruption import Interruption, who_sends
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, ranks, verb

_MIND = "A rank failed at the same moment and left no record of it."


def _look(view: RunView) -> Iterator[Finding]:
    interruption = view.interruption
    if interruption is None:
        return
    where = f" in step {interruption.step}" if interruption.step is not None else ""
    evidence: dict[str, float | int | str | None] = {"signal": interruption.signal, "step": interruption.step}
    if not interruption.ranks:
        code = interruption.command
        how = "Ctrl-C" if interruption.signal == "SIGINT" else interruption.signal
        if code is not None:
            how = f"its command had ended with exit code {shown(code)} and left its ranks, which pyddpdiag run ended"
        yield Finding(
            kind="interrupted",
            severity="note",
            message=f"interrupted{where} ({how}).",
            confidence="high",
            since_step=interruption.step,
            evidence=evidence,
            change_mind=_MIND,
            advice=_advice(interruption),
        )
        return
    ahead = f", {milliseconds(interruption.ahead_ms)} before the others" if interruption.ahead_ms else ""
    failed = {error.rank for error in view.errors.first} - set(interruption.ranks)
    after = f"; {ranks(sorted(failed))} then failed" if failed else ""
    yield Finding(
        kind="interrupted",
        severity="error",
        message=f"{ranks(interruption.ranks)} {verb(interruption.ranks, 'was', 'were')} ended by "
        f"{interruption.signal}{where}{ahead}{after}.",
        confidence="high",
        rank=interruption.ranks[0] if len(interruption.ranks) == 1 else None,
        since_step=interruption.step,
        evidence={**evidence, "ahead_ms": interruption.ahead_ms, "others_failed": len(failed)},
        change_mind=_MIND,
        advice=who_sends(interruption.signal),
    )


def _advice(interruption: Interruption) -> str:
    if interruption.command is not None:
        return (
            "Look at the command's own output, and at the system's log of killed processes. A script that starts "
            "ranks in the background must wait for them."
        )
    return "" if interruption.signal == "SIGINT" else who_sends(interruption.signal)


CHECK = Check(("interrupted",), _look, rests_on="records")
