"""The interfaces over which a group sums parts of its buckets at once, as a sidecar holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyddpdiag.model.untrusted import needed_list, number, text


@dataclass(frozen=True)
class GroupLane:
    """One lane.

    Attributes:
        interface: as the rank that wrote it calls it.
        mbit: its rate in Mbit/s as it sums, which all ranks have agreed on.
        share: of a bucket of 25 MiB, from 0 to 1.
    """

    interface: str
    mbit: float | None
    share: float | None


def lane_to_json(lane: GroupLane) -> dict[str, Any]:
    """As it stands in the file."""
    return {"interface": lane.interface, "mbit": lane.mbit, "share": lane.share}


def lanes_from_json(raw: object, limit: int = 64) -> tuple[GroupLane, ...]:
    """What can be understood of it.

    Raises:
        TypeError, ValueError: nothing can.
    """
    return tuple(_lane(each) for each in needed_list(raw, limit)) if raw is not None else ()


def _lane(entry: Mapping[str, Any]) -> GroupLane:
    return GroupLane(text(entry, "interface", 512), number(entry.get("mbit")), number(entry.get("share")))


__all__ = ["GroupLane", "lane_to_json", "lanes_from_json"]
