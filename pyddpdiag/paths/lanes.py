"""The interfaces that carry parts of each bucket at once, as a user names them. Without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyddpdiag.errors import UsageError

LIMIT: Final = 64
"""Lanes of a group: each has threads and connections of its own."""

OWN: Final = "*"
"""The interface that Gloo takes by itself, or the first one of GLOO_SOCKET_IFNAME."""


@dataclass(frozen=True)
class Lane:
    """One interface, or one of several connections over it.

    Attributes:
        interface: its name on this rank's host; or `OWN`.
        mbit: its rate in Mbit/s; None: it is measured.
    """

    interface: str
    mbit: float | None = None


def parse(names: Sequence[str]) -> tuple[Lane, ...]:
    """The lanes in `["eth0", "eth1"]`, or `["eth0=100", "eth1=300"]` with their rates in Mbit/s.

    Raises:
        UsageError: there are fewer than two or too many, one has no name, or a rate is no number or not given for all.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"lanes must be a list of interface names, not {names!r}.", hint='lanes=["eth0", "eth1"]'
        )
    if not 2 <= len(names) <= LIMIT:
        raise UsageError(
            f"lanes names {len(names)} of 2 to {LIMIT} interfaces.",
            hint="for one interface, set GLOO_SOCKET_IFNAME (--interface); name one twice for two connections over it.",
        )
    lanes = tuple(_parse(name) for name in names)
    if len({lane.mbit is None for lane in lanes}) > 1:
        raise UsageError(
            "lanes gives a rate for some interfaces only.",
            hint='give one for each, as in "eth0=100,eth1=300", or for none: then they are measured.',
        )
    return lanes


def _parse(text: str) -> Lane:
    name, equals, rate = text.partition("=")
    if not name.strip():
        raise UsageError(f"lanes has an empty interface name in {text!r}.", hint="write eth0,eth1.")
    if not equals:
        return Lane(name.strip())
    try:
        mbit = float(rate)
    except ValueError:
        mbit = math.nan
    # What one byte takes is a whole number of picoseconds, for all ranks alike.
    if not 0.01 <= mbit <= 10**6:
        raise UsageError(
            f"lanes: {rate!r} is no rate for {name.strip()}.",
            hint="give Mbit/s from 0.01 to 1000000, as in eth0=100.",
        )
    return Lane(name.strip(), mbit)
