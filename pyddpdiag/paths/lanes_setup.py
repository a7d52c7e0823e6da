"""Connects the ranks of a group over several interfaces, and finds out how much each carries (docs/lanes.md).

Each lane is a Gloo group of its own over one interface. All ranks must cut a bucket alike, so they agree through the
store: each time that is measured counts as the longest of all ranks, and rank 0's rates hold for all. From these the
core makes the first division, and tries it on the buckets themselves.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Sequence
from typing import Any, Final

import psutil
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError
from pyddpdiag.model.sidecar import GroupLane
from pyddpdiag.paths import beside, exchange_setup, gathering, gloo
from pyddpdiag.paths.lanes import OWN, Lane

_Outcome = tuple[tuple[Lane, ...], _native.Lanes, tuple[float, ...]]
# For recorders that have asked, by the name of the group.
_outcomes: weakref.WeakKeyDictionary[_native.Recorder, dict[str, _Outcome]] = weakref.WeakKeyDictionary()

# What a sum takes beside its bytes, where rates are given and not measured.
_LATENCY_NS: Final = 200_000
_SMALL: Final = 4096
_SMALL_TIMES: Final = 30
_FIRST, _LAST = 2**16, 2**26
_FACTOR: Final = 4
# So long that the burst which shapers let through counts for little.
_LONG_S: Final = 0.1
_TIMES: Final = 3


def prepare(
    core: _native.Recorder, group: dist.ProcessGroup, lanes: tuple[Lane, ...]
) -> _native.Lanes | None:
    """Connects and measures at the first call, made by all ranks of `group` together; they may retry a failure.

    `group`: all of its ranks call this. `lanes`: as many on all ranks; names may differ from host to host.

    Returns:
        What carries the buckets of this group; None: there is one rank, or no lanes were asked for.

    Raises:
        ReductionError: some ranks did not take part, or their lanes do not fit; or one cannot be connected.
    """
    if not lanes or group.size() == 1:
        return None
    known = _outcomes.setdefault(core, {})
    name = group.group_name
    if name not in known or known[name][0] != lanes:
        known[name] = (lanes, *connect(group, lanes))
    return known[name][1]


def outcome(core: _native.Recorder, group_name: str) -> tuple[GroupLane, ...]:
    """The lanes of a group, as this rank calls them; empty if nobody asked."""
    found = _outcomes.get(core, {}).get(group_name)
    if found is None:
        return ()
    asked, result, mbit = found
    ends = [0, *result.ends()]
    return tuple(
        GroupLane(lane.interface, rate, round((end - begin) / ends[-1], 4))
        for lane, rate, begin, end in zip(asked, mbit, ends[:-1], ends[1:], strict=True)
    )


def tell(
    core: _native.Recorder,
    group: dist.ProcessGroup,
    lanes: tuple[Lane, ...],
    connected: tuple[_native.Lanes, tuple[float, ...]],
) -> None:
    """Has a recorder know what `connect` gave for a group: later calls of `prepare` take it."""
    _outcomes.setdefault(core, {})[group.group_name] = (lanes, *connected)


def connect(group: dist.ProcessGroup, lanes: tuple[Lane, ...]) -> tuple[_native.Lanes, tuple[float, ...]]:
    """Connects and measures, each time; as `prepare` without a recorder, for a group of several ranks.

    Returns:
        What carries the buckets; each lane's rate in Mbit/s.

    Raises:
        ReductionError: as `prepare`.
    """
    devices, error = _devices(lanes)
    rates = None if lanes[0].mbit is None else [lane.mbit for lane in lanes]
    ours = {"count": len(lanes), "rates": rates, "error": error}
    # Only what goes wrong between the ranks; what does not fit is the same error on all of them.
    try:
        with gathering.meet(group, "lanes", json.dumps(ours)) as meeting:
            problem = _problem([json.loads(value) for value in meeting.values])
            if not problem:
                backends = [
                    _connected(group, lanes, place, device, meeting.store)
                    for place, device in enumerate(devices)
                ]
                names = [lane.interface for lane in lanes]
                if rates is None:
                    found = _Measuring(names, backends, meeting).rates()
                else:
                    # 8 bits of a byte at a million bits a second.
                    found = [(_LATENCY_NS, round(8e6 / float(rate or 1))) for rate in rates]
                chosen = json.loads(meeting.swap("rates", json.dumps(found))[0])
    except RuntimeError as failure:
        raise ReductionError(
            f"rank {dist.get_rank()}: cannot connect the ranks over several interfaces "
            f"({', '.join(lane.interface for lane in lanes)}): {failure}",
            hint="give lanes=... on all ranks, with the same hook; each interface must reach the one in the same "
            "place of the other ranks' lists.",
        ) from failure
    if problem:
        raise ReductionError(
            f"rank {dist.get_rank()}: no lanes for these ranks: {problem}.",
            hint="name as many interfaces on each rank, each the one that reaches those in the same place of the "
            "other ranks' lists.",
        )
    beside.hold(group, *backends)
    agreed = [(int(latency), int(cost)) for latency, cost in chosen]
    # Rates of the user's own are not tried.
    result = _native.Lanes(names, backends, agreed, rates is None)
    return result, tuple(round(8e6 / cost, 2) for _, cost in agreed)


def _devices(lanes: tuple[Lane, ...]) -> tuple[list[Any], str]:
    """Gloo's handle of each interface; or why there is none."""
    found = []
    for lane in lanes:
        try:
            found.append(_device(lane.interface))
        except RuntimeError:
            known = sorted(psutil.net_if_addrs())
            why = "has no IP address" if lane.interface in known else "does not exist"
            return [], f"its interface {lane.interface!r} {why}; it has {', '.join(known) or 'none'}"
    return found, ""


def _device(interface: str) -> Any:
    if interface != OWN:
        return dist.ProcessGroupGloo.create_device(interface=interface)
    named = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    return _device(named) if named else dist.ProcessGroupGloo.create_default_device()


def _problem(brought: list[dict[str, Any]]) -> str:
    """What is wrong with the lanes of all ranks, the same sentence on each; empty: nothing."""
    for rank, each in enumerate(brought):
        if each["error"]:
            return f"rank {rank} of the group cannot use them: {each['error']}"
    counts = [each["count"] for each in brought]
    for rank, count in enumerate(counts):
        if count != counts[0]:
            return f"rank 0 of the group names {counts[0]} interfaces, rank {rank} names {count}"
    for rank, each in enumerate(brought):
        if each["rates"] != brought[0]["rates"]:
            return f"rank {rank} of the group gives other rates than rank 0"
    return ""


def _connected(
    group: dist.ProcessGroup, lanes: Sequence[Lane], place: int, device: Any, store: Store
) -> _native.OwnBackend:
    options = exchange_setup.options_like(group)
    options._devices = [device]
    # As many buckets at once as in the group itself.
    options._threads = gloo.options_of(group)._threads
    try:
        return _native.OwnBackend(
            dist.ProcessGroupGloo(PrefixStore(f"lane/{place}", store), group.rank(), group.size(), options)
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"lane {place + 1} of {len(lanes)} (interface {lanes[place].interface}): {error}"
        ) from error


class _Measuring:
    """Measures lanes, in all ranks together.

    Every time counts as that of the slowest rank, so that all conclude the same.
    """

    def __init__(
        self, names: list[str], backends: list[_native.OwnBackend], meeting: gathering.Meeting
    ) -> None:
        self._names = names
        self._backends = backends
        self._meeting = meeting
        self._swaps = 0

    def rates(self) -> list[tuple[int, int]]:
        """Latency in ns and ps per byte of each lane."""
        found = []
        for place in range(len(self._names)):
            alone = _native.Lanes([self._names[place]], [self._backends[place]], [(0, 1)], False)
            self._seconds(alone, _SMALL, 5)  # the first ones warm up
            # Many at a time, since the ranks begin some milliseconds apart; the shortest, since other work delays some.
            latency = min(self._seconds(alone, _SMALL, _SMALL_TIMES) for _ in range(5)) / _SMALL_TIMES
            size = _FIRST
            while (taken := self._seconds(alone, size, _TIMES) / _TIMES) < _LONG_S and size < _LAST:
                size *= _FACTOR
            cost = max(0.0, taken - latency) / size
            found.append((min(2**36, round(latency * 1e9)), min(2**30, max(1, round(cost * 1e12)))))
        return found

    def _seconds(self, lanes: _native.Lanes, size: int, times: int) -> float:
        taken = lanes.seconds(size, times)
        self._swaps += 1
        return max(float(each) for each in self._meeting.swap(f"time/{self._swaps}", repr(taken)))
