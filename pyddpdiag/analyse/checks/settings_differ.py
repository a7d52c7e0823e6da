"""The ranks run with different settings that change how fast or how they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyddpdiag.analyse.batches import uneven_batches
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.majority import odd_ones
from pyddpdiag.analyse.settings import Difference, differences
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import listed

OF_LOADER: Final = ("samples of an epoch", "batch size")
"""No launcher makes these equal."""

LONGEST: Final = 60
"""Characters of a value: an environment may hold anything."""


def _look(view: RunView) -> Iterator[Finding]:
    found = differences(view.sidecars)
    if not found:
        return
    odd = {rank for difference in found for rank in odd_ones(difference.values)}
    yield Finding(
        kind="settings_differ",
        severity="note",
        message="the ranks have different settings: " + "; ".join(map(_said, found)) + ".",
        confidence="certain",
        rank=odd.pop() if len(odd) == 1 else None,
        evidence={difference.name: _said(difference) for difference in found},
        change_mind="This is intended: the machines differ, and each rank's settings fit its machine.",
        advice=_advice(view, found),
    )


def _advice(view: RunView, found: Sequence[Difference]) -> str:
    parts = []
    if any(difference.name not in OF_LOADER for difference in found):
        parts.append(
            "Start every rank with the same torch and the same environment, for instance through one launcher."
        )
    if uneven_batches(view.sidecars) is not None:
        parts.append(f"Unless the loop over batches is within Join already: {_small(view.advice.uneven())}")
    elif not parts:
        parts.append("Give every rank as many samples, in batches of the same size.")
    return " ".join(parts)


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _said(difference: Difference) -> str:
    ranks: dict[str, list[int]] = {}
    for rank, value in sorted(difference.values.items()):
        ranks.setdefault(value, []).append(rank)
    values = (f"{value[:LONGEST]} on rank {listed(some, 4)}" for value, some in ranks.items())
    return f"{difference.name} is {listed(values, 4)}"


CHECK = Check(("settings_differ",), _look, rests_on="records")
