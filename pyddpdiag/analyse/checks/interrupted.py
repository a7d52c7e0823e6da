"""Somebody ended the run from outside before anything went wrong: Ctrl-C, a scheduler, a container that stops."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.interruption import who_sends
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import milliseconds, ranks, verb


def _look(view: RunView) -> Iterator[Finding]:
    one = view.interruption
    if one is None:
        return
    where = f" in step {one.step}" if one.step is not None else ""
    failed = {error.rank for error in view.errors.first} - set(one.ranks)
    if one.ranks:
        ahead = f", {milliseconds(one.ahead_ms)} before the others" if one.ahead_ms else ""
        after = f"; {ranks(sorted(failed))} then failed" if failed else ""
        said = (
            f"{ranks(one.ranks)} {verb(one.ranks, 'was', 'were')} ended by {one.signal}{where}{ahead}{after}."
        )
    else:
        how = "Ctrl-C" if one.signal == "SIGINT" else one.signal
        if one.command is not None:
            code = shown(one.command)
            how = f"its command had ended with exit code {code} and left its ranks, which pyddpdiag run ended"
        said = f"interrupted{where} ({how})."
    yield Finding(
        kind="interrupted",
        severity="error" if one.ranks else "note",
        message=said,
        confidence="high",
        rank=one.ranks[0] if len(one.ranks) == 1 else None,
        since_step=one.step,
        evidence={
            "signal": one.signal,
            "step": one.step,
            **({"ahead_ms": one.ahead_ms, "others_failed": len(failed)} if one.ranks else {}),
        },
        change_mind="A rank failed at the same moment and left no record of it.",
        advice="Look at the command's own output, and at the system's log of killed processes. A script that starts "
        "ranks in the background must wait for them."
        if one.command is not None and not one.ranks
        else who_sends(one.signal) * (one.signal != "SIGINT" or bool(one.ranks)),
    )


CHECK = Check(("interrupted",), _look, rests_on="records")
