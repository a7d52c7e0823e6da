"""The ranks introduce themselves through the store before the process group is made.

torch itself would hang, or accept a wrong world and hang later. This names the rank and the reason instead:
ranks that never arrived, two processes with one rank, different world sizes or settings, and a rank that
arrived but cannot start.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from pyddpdiag.errors import RendezvousError
from pyddpdiag.model import words
from pyddpdiag.output import clean
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.system import processes
from pyddpdiag.system.processes import namespace

#: Every introduction begins with this, so that it can be found in the raw bytes of a store's file.
MARK: Final = '{"pyddpdiag_hello": '
#: The longest introduction, in bytes. Ours have some hundred, and two paths of any length that a system takes.
MAX_BYTES: Final = 64 * 1024
_VERSION = 1
_MAX_TEXT = 16 * 1024
_MAX_PROBLEM = 2000
_MAX_SETTINGS = 256
_MAX_RANKS = 2**31
_MAX_PID = 2**32
# Seconds since 1970 that are a date of some five digits at most: nothing overflows.
_MAX_TIME_S = 1e12


@dataclass(frozen=True)
class Hello:
    """How a rank introduces itself.

    `settings` are what all ranks must agree on, `payload` is for whatever they do then, and `problem` says why this
    one cannot start, "" if it can.
    """

    rank: int
    world_size: int
    machine: str
    pid: int
    started: float
    at: float
    settings: dict[str, str]
    payload: str | None
    problem: str = ""

    def to_json(self) -> str:
        """One line of ASCII."""
        fields = asdict(self)
        fields["problem"] = self.problem[:_MAX_PROBLEM]
        return json.dumps({"pyddpdiag_hello": _VERSION, **fields})

    @classmethod
    def from_json(cls, text: str | bytes) -> Hello:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is not an introduction. Nothing else is raised, whatever the text.
        """
        if len(text) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES} bytes")
        try:
            fields = json.loads(text.decode("ascii") if isinstance(text, bytes) else text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(fields, dict) or fields.pop("pyddpdiag_hello", None) != _VERSION:
            raise ValueError("it is not an introduction of this version")
        if fields.keys() != _PLAUSIBLE.keys():
            raise ValueError("it has other fields")
        for name, plausible in _PLAUSIBLE.items():
            if not plausible(fields[name]):
                raise ValueError(f"its '{name}' cannot be right")
        hello = cls(**fields)
        if hello.rank >= hello.world_size:
            raise ValueError("its rank is outside of its world")
        return hello

    def who(self) -> str:
        """The rank with its process, for messages."""
        return f"rank {self.rank} (pid {self.pid} on {clean(self.machine.split(' ')[0], 100)})"


def _whole(least: int, end: int) -> Callable[[object], bool]:
    def plausible(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value < end

    return plausible


def _time(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return 0 <= value < _MAX_TIME_S  # so it is not NaN either


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT and "\0" not in value


def _settings(value: object) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= _MAX_SETTINGS
        and all(_text(name) and _text(setting) for name, setting in value.items())
    )


_PLAUSIBLE: Final[dict[str, Callable[[object], bool]]] = {
    "rank": _whole(0, _MAX_RANKS),
    "world_size": _whole(1, _MAX_RANKS + 1),
    "machine": _text,
    "pid": _whole(1, _MAX_PID),
    "started": _time,
    "at": _time,
    "settings": _settings,
    "payload": lambda value: value is None or _text(value),
    "problem": _text,
}


def machine() -> str:
    """A name for the processes that this one can see; differs between containers of one machine."""
    return f"{socket.gethostname()} {namespace()}".strip()


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
        machine=machine(),
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
