"""The ranks introduce themselves through the store before the process group is made.

torch itself would hang, or accept a wrong world and hang later. This names the rank and the reason instead:
ranks that never arrived, two processes with one rank, different world sizes or settings, and a rank that
arrived but cannot start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from pyddpdiag.errors import RendezvousError
from pyddpdiag.model import words
from pyddpdiag.output import clean
from pyddpdiag.ranks import identity
from pyddpdiag.ranks.hello import Hello
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.system import processes

KEY = "pyddpdiag/hello/"
_POLL_S = 0.05
# A rank that found a fault stays this long, so that the others can read about it before its store goes away.
_LINGER_S = 1.5


class Store(Protocol):
    """What is used of torch's stores."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value of a key."""
        ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Sets the key if it has the expected value ("": is missing); returns the value that it has then."""
        ...


def introduce(place: Place, settings: Mapping[str, str], payload: str | None, problem: str = "") -> Hello:
    """The introduction of this process."""
    return Hello(
        rank=place.rank,
        world_size=place.world_size,
        machine=identity.machine(),
        pid=os.getpid(),
        started=processes.started_at(),
        at=time.time(),
        settings=dict(settings),
        payload=payload,
        problem=problem,
    )


def meet(
    store: Store, mine: Hello, timeout_s: float, where: str, clock: Callable[[], float] = time.monotonic
) -> list[Hello]:
    """Waits for all ranks; returns their introductions by rank.

    Raises:
        RendezvousError: a rank does not come in time, or does not fit the others.
    """
    try:
        _publish(store, mine)
        return _collect(store, mine, timeout_s, where, clock)
    except RendezvousError:
        time.sleep(_LINGER_S)
        raise


def _publish(store: Store, mine: Hello) -> None:
    text = mine.to_json()
    there = store.compare_set(f"{KEY}{mine.rank}", "", text)
    if there != text.encode():
        raise RendezvousError(
            f"rank {mine.rank} is there already: {_hello(there, mine.rank).who()}.",
            hint="give every process a --rank of its own, or end the run that is still going on there.",
        )


def _collect(
    store: Store, mine: Hello, timeout_s: float, where: str, clock: Callable[[], float]
) -> list[Hello]:
    deadline = clock() + timeout_s
    came: dict[int, Hello] = {mine.rank: mine}
    while True:
        for rank in range(mine.world_size):
            if rank not in came and store.check([f"{KEY}{rank}"]):
                came[rank] = _hello(store.get(f"{KEY}{rank}"), rank)
                _compare(mine, came[rank])
        if mine.problem:
            raise RendezvousError(f"rank {mine.rank} cannot start: {mine.problem}")
        if len(came) == mine.world_size:
            return [came[rank] for rank in range(mine.world_size)]
        if clock() >= deadline:
            raise RendezvousError(
                f"Only {len(came)} of {mine.world_size} ranks came to {where} within {timeout_s:g} s; "
                f"missing: {words.listed(rank for rank in range(mine.world_size) if rank not in came)}.",
                hint="start the missing ranks, or see their output; --timeout waits longer.",
            )
        time.sleep(_POLL_S)


def _compare(mine: Hello, other: Hello) -> None:
    if other.world_size != mine.world_size:
        raise RendezvousError(
            f"The world sizes differ: {mine.world_size} on rank {mine.rank}, "
            f"{other.world_size} on {other.who()}.",
            hint="give all ranks the same --world-size (or WORLD_SIZE).",
        )
    if other.problem:
        raise RendezvousError(f"rank {other.rank} cannot start: {clean(other.problem)}")
    for option in sorted(set(mine.settings) | set(other.settings)):
        here, there = mine.settings.get(option), other.settings.get(option)
        if here != there:
            raise RendezvousError(
                f"{clean(option, 100)} differs: {here} on rank {mine.rank}, {_shown(there)} on {other.who()}.",
                hint="start all ranks with the same options and the same version of pyddpdiag.",
            )


def _shown(setting: str | None) -> str | None:
    return None if setting is None else clean(setting, 200)


def _hello(value: bytes, rank: int) -> Hello:
    """The introduction in a rank's place, if it is a valid one."""
    try:
        hello = Hello.from_json(value)
    except ValueError as error:
        raise RendezvousError(
            f"Something other than a rank of this version of pyddpdiag is at the place of rank {rank}: {error}.",
            hint="use another file or port, and the same version on all ranks.",
        ) from error
    if hello.rank != rank:
        raise RendezvousError(
            f"{hello.who()} introduced itself at the place of rank {rank}.",
            hint="something else writes to this store: use another file or port.",
        )
    return hello
