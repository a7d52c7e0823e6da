"""How ranks are started, meet and are supervised; nothing about what they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """The same options serve launched ranks and a rank that joins others.

    Attributes:
        timeout_s: longest wait for the other ranks, at the start and in every collective, in seconds.
        interfaces: network interfaces for Gloo; empty leaves the choice to `interfaces.choose`.
        settings: what all ranks must agree on, by the name that a user knows it by. Ranks that differ refuse to
            start and name the first difference.
    """

    timeout_s: float = 300.0
    interfaces: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
