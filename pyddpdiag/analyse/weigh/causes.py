"""Which error led to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyddpdiag.model.findings import Confidence, Finding
from pyddpdiag.model.kinds import kind_of

SURE: Final[tuple[Confidence, ...]] = ("certain", "high", "medium", "low")


def causes_first(errors: Sequence[Finding]) -> list[Finding]:
    """The errors, causes before what they led to, which then does not say that its cause is unknown; else their order
    stays."""
    found = [(sum(leads(cause, one) for cause in errors), one) for one in errors]
    return [_led(one) if causes else one for causes, one in sorted(found, key=lambda each: each[0])]


def leads(cause: Finding, effect: Finding) -> bool:
    """Whether one error surely led to another one, which came in the same step or later."""
    kind = kind_of(cause)
    if effect.kind not in kind.leads_to or SURE.index(cause.confidence) > SURE.index(kind.leads_from):
        return False
    since = 0 if cause.since_step is None and cause.confidence == "certain" else cause.since_step
    return effect.since_step is None or (since is not None and since <= effect.since_step)


def _led(effect: Finding) -> Finding:
    return replace(effect, message=effect.message.replace(kind_of(effect).unless_led, ""))
