"""How the ranks of a group meet through its store to set something up together, and may retry a failure.

A failed meeting leaves keys in the store: of ranks that took part, and addresses of what was never complete. So
each call of each rank has a token, and a meeting's keys include the tokens of all ranks. The meeting begins when
all ranks have seen the same tokens; until then a token may belong to a call that has failed since.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag.paths import gloo

# How many times the ranks of a group have met for a purpose: the same on all of them.
_met: weakref.WeakKeyDictionary[dist.ProcessGroup, Counter[str]] = weakref.WeakKeyDictionary()
# Takes the place of the token of a call that has failed.
_FAILED = "failed"
# Why no attempt can succeed any more.
_LOST = "lost"
_LOOK_EVERY_S = 0.1


class Meeting:
    """All ranks of a group, in one attempt.

    Attributes:
        values: what each rank brought.
        store: for keys of this attempt alone.
    """

    def __init__(self, values: list[str], store: Store, group: dist.ProcessGroup, wait: _Wait) -> None:
        self.values = values
        self.store = store
        self._group = group
        self._wait = wait

    def swap(self, what: str, value: str) -> list[str]:
        """Waits until all ranks have brought a value under this name.

        Returns:
            The value of each rank.

        Raises:
            RuntimeError: a rank did not bring one within the time, or has ended.
        """
        self.store.set(f"{what}/{self._group.rank()}", value)
        keys = _keys(what, self._group)
        self._wait.wait_for(self.store, keys)
        return [self.store.get(key).decode() for key in keys]


@contextlib.contextmanager
def meet(
    group: dist.ProcessGroup,
    purpose: str,
    value: str,
    lost: Callable[[list[str]], str] | None = None,
    within_s: float | None = None,
) -> Iterator[Meeting]:
    """Meets the other ranks; all of them leave the block, or none.

    If the block fails, they see that this attempt has failed here.

    Args:
        group: all of its ranks call this.
        purpose: of the meeting: which keys of the group's store it takes.
        value: for the others; without a line break.
        lost: given what each rank brought, asked now and then while waiting: why there is no hope; empty: there is.
            One rank that sees it is enough for all.
        within_s: when to give up; None: after the group's timeout.

    Raises:
        RuntimeError: not all ranks came within the time, or there is no hope.
    """
    met = _met.setdefault(group, Counter())
    store = PrefixStore(f"pyddpdiag/{purpose}/{met[purpose]}", group.get_group_store())
    if within_s is None:
        within_s = gloo.options_of(group)._timeout.total_seconds()
    ours = f"call/{group.rank()}"
    try:
        store.set(ours, f"{uuid.uuid4().hex} {value}")
        wait = _Wait(store, time.monotonic() + within_s, lost)
        calls, shared = _agree(store, group, wait)
        meeting = Meeting(_values(calls), shared, group, wait)
        yield meeting
        meeting.swap("done", "done")
    except BaseException:
        with contextlib.suppress(RuntimeError):
            store.set(ours, _FAILED)
        raise
    met[purpose] += 1


class _Wait:
    """How long to wait for the other ranks."""

    def __init__(self, store: Store, until: float, lost: Callable[[list[str]], str] | None) -> None:
        self.values: list[str] = []  # what each rank brought, once it is known
        self._store = store
        self._until = until
        self._lost = lost
        self._look_at = 0.0

    def wait_for(self, store: Store, keys: list[str]) -> None:
        while not store.check(keys):
            self.pause("not all ranks have come")

    def pause(self, why: str) -> None:
        now = time.monotonic()
        if now > self._until:
            raise RuntimeError(f"{why} within the process group's timeout")
        if self._lost is not None and now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            self._look(self._lost)
        time.sleep(0.01)

    def _look(self, lost: Callable[[list[str]], str]) -> None:
        if self.values and (why := lost(self.values)):
            self._store.set(_LOST, why)
        if self._store.check([_LOST]):
            raise RuntimeError(self._store.get(_LOST).decode())


def _agree(store: Store, group: dist.ProcessGroup, wait: _Wait) -> tuple[list[str], Store]:
    """The token of each rank's call, and the store of the meeting."""
    wait.wait_for(store, _keys("call", group))
    seen: list[str] = []
    while True:
        calls = [store.get(key).decode() for key in _keys("call", group)]
        shared = PrefixStore(hashlib.sha256("\n".join(calls).encode()).hexdigest(), store)
        if _FAILED not in calls and calls != seen:
            shared.set(f"here/{group.rank()}", "here")
            seen = calls
            wait.values = _values(calls)
        if calls == seen and shared.check(_keys("here", group)):
            return calls, shared
        wait.pause("a rank has not come back after it failed")


def _values(calls: list[str]) -> list[str]:
    return [call.partition(" ")[2] for call in calls]


def _keys(what: str, group: dist.ProcessGroup) -> list[str]:
    return [f"{what}/{rank}" for rank in range(group.size())]
