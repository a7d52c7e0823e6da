"""Gloo's traffic goes over another interface than asked for, over one of several, or over a slow one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.interface_use import VARIABLE, Detour, detours
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, shell_on, write
from pyddpdiag.model import Finding, words
from pyddpdiag.model.findings import Confidence

_WHY = {
    "not asked for": "{variable} asks for {better}, and {ranks} {send} over {used}",
    "unused": "{variable} names {better} too, and {ranks} {send} everything over {used}",
    "slower": "{ranks} {send} over {used} ({used_mbit} Mbit/s), and {better} ({better_mbit} Mbit/s) reaches "
    "the same hosts",
    "idle": "{ranks} {send} over {used}, which carries {used_mbit} Mbit/s and is made for far more; {better} "
    "reaches the same hosts and is not used",
}

UNSURE: Final[dict[str, Confidence]] = {"slower": "medium", "idle": "low"}
"""A speed that the system names was not measured; what an idle interface would carry, nobody knows."""


def _look(view: RunView) -> Iterator[Finding]:
    exposed = view.exposure
    if not exposed.is_found:
        return
    found = detours(view.link_faults.carrying, view.sidecars)
    # What an idle interface would carry is a guess: it needs a run that surely waits, and nothing better to say.
    guess = exposed.is_large and not view.link_faults.has_culprit
    found = tuple(each for each in found if each.why != "idle" or guess)
    if not found:
        return
    # One cause, however many ranks it shows on.
    first = min(found, key=lambda each: (list(_WHY).index(each.why), each.rank))
    same = sorted({each.rank for each in found if each.why == first.why})
    why = _WHY[first.why].format(
        variable=VARIABLE,
        better=first.better,
        used=first.used,
        ranks=words.ranks(same),
        send=words.verb(same, "sends", "send"),
        used_mbit=first.used_mbit,
        better_mbit=first.better_mbit,
    )
    yield Finding(
        kind="wrong_interface",
        severity="note" if first.why == "idle" else "warning",
        message=f"{why}; waiting for communication holds up {exposed.of_each_step}.",
        confidence=UNSURE.get(first.why) or confidence(exposed.typical.steps),
        rank=first.rank if len(same) == 1 else None,
        cost_ms=None if first.why == "idle" else exposed.cost_ms * _saved(first),
        evidence={
            "used": first.used,
            "better": first.better,
            "why": first.why,
            "ranks": len(same),
            "exposed_ms": exposed.cost_ms,
            "step_ms": exposed.step_ms,
        },
        change_mind="The other interface is actually slower, or does not reach all hosts: pyddpdiag bench interfaces "
        "measures it.",
        advice="Race the two: pyddpdiag bench interfaces, with --dist-url on each host."
        if first.why == "idle"
        else "Give all ranks the same names in the same order: "
        + write(SetVariable(VARIABLE, first.advised), shell_on(view.sidecars[first.rank].platform))
        + view.advice.line("--interface", first.advised),
    )


def _saved(detour: Detour) -> float:
    """The part of the transfer that would be saved."""
    if detour.used_mbit and detour.better_mbit:
        return max(0.0, 1 - detour.used_mbit / detour.better_mbit)
    return 0.5


# Where the order differs, an interface that is not used is what comes of it.
CHECK = Check(("wrong_interface",), _look, per_group=True, rests_on="waits")
