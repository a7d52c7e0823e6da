"""GLOO_SOCKET_IFNAME names the same interfaces in another order on some ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyddpdiag.analyse.bounds import confidence
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.links.interface_use import VARIABLE, asked_for
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.shells import SetVariable, shell_on, write
from pyddpdiag.model import Finding
from pyddpdiag.model.words import listed


def _look(view: RunView) -> Iterator[Finding]:
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
    held = f", and {exposed.of_each_step} wait for it" if costs else ""
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


CHECK = Check(("interface_order",), _look, per_group=True, rests_on="waits")
