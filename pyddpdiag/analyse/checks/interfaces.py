"""Gloo's traffic goes over other interfaces than it should: not asked for, one of several, a slow one, or in another
order than on other ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import MOST, confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.interface_use import VARIABLE, asked_for, detours
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, shell_on, write
from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.words import listed, ranks, verb

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


def _detours(view: RunView) -> Iterator[Finding]:
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
    saved = MOST
    if first.used_mbit and first.better_mbit:
        saved = max(0.0, 1 - first.used_mbit / first.better_mbit)
    why = _WHY[first.why].format(
        variable=VARIABLE,
        better=first.better,
        used=first.used,
        ranks=ranks(same),
        send=verb(same, "sends", "send"),
        used_mbit=first.used_mbit,
        better_mbit=first.better_mbit,
    )
    yield Finding(
        kind="wrong_interface",
        severity="note" if first.why == "idle" else "warning",
        message=f"{why}; waiting for communication holds up {exposed.of_step}.",
        confidence=UNSURE.get(first.why) or confidence(exposed.typical.steps),
        rank=first.rank if len(same) == 1 else None,
        cost_ms=None if first.why == "idle" else exposed.cost_ms * saved,
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


def _order(view: RunView) -> Iterator[Finding]:
    asked = {rank: names for rank, names in asked_for(view.sidecars).items() if len(names) > 1}
    if len(set(asked.values())) < 2 or len({tuple(sorted(names)) for names in asked.values()}) > 1:
        return
    # The order of most ranks; of equals the lowest rank's.
    usual, _ = Counter(asked[rank] for rank in sorted(asked)).most_common(1)[0]
    other = [rank for rank in sorted(asked) if asked[rank] != usual]
    shell = shell_on(view.sidecars[other[0]].platform)
    exposed = view.exposure
    costs = exposed.is_found
    half = exposed.cost_ms * (1 - 1 / len(usual)) if costs else None
    held = f", and {exposed.of_step} wait for it" if costs else ""
    yield Finding(
        kind="interface_order",
        severity="warning" if costs else "note",
        message=f"{VARIABLE} is {','.join(asked[other[0]])} on rank {listed(other)} and {','.join(usual)} on the "
        f"others: Gloo pairs the interfaces by position, so all traffic may go over one{held}.",
        confidence=confidence(exposed.typical.steps) if costs else "medium",
        rank=other[0] if len(other) == 1 and len(asked) > 2 else None,
        cost_ms=half,
        evidence={
            "ranks": len(asked),
            "differing": len(other),
            "interfaces": ",".join(usual),
            "exposed_ms": exposed.cost_ms if costs else None,
        },
        change_mind="On that machine the interfaces have other names, and this order pairs the right ones.",
        advice=f"Use one order on all ranks: {write(SetVariable(VARIABLE, ','.join(usual)), shell)}"
        + view.advice.line("--interface", ",".join(usual)),
    )


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="waits")
    for kind, look in (("interface_order", _order), ("wrong_interface", _detours))
)
