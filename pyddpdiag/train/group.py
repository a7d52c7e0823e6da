"""Makes this process's default process group, from the rendezvous to the first handshake."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from pyddpdiag.errors import RendezvousError
from pyddpdiag.train.meeting import Hello, meet
from pyddpdiag.train.rendezvous import Place
from pyddpdiag.train.stores import open_store

_FAILED = "pyddpdiag/failed"


class Group:
    """The default process group over Gloo, and the store beside it."""

    def __init__(self, place: Place, store: Store, hellos: list[Hello]) -> None:
        self.place = place
        self.hellos = hellos
        self._store = store

    def tell_failure(self, sentence: str) -> None:
        """Leaves this rank's reason in the store, for ranks that go down with it. The first one stays."""
        with suppress(RuntimeError):
            self._store.compare_set(_FAILED, "", sentence)

    def told_failure(self) -> str:
        """The reason that the first failing rank left, "" if none did or the store is gone."""
        try:
            return self._store.get(_FAILED).decode() if self._store.check([_FAILED]) else ""
        except RuntimeError:
            return ""

    def wait_for_reason(self, patience_s: float = 2.0) -> str:
        """`told_failure`, after giving the failing rank a moment to leave it."""
        end = time.monotonic() + patience_s
        while True:
            reason = self.told_failure()
            if reason or time.monotonic() >= end:
                return reason
            time.sleep(0.05)


@contextmanager
def process_group(
    place: Place,
    mine: Hello,
    timeout_s: float,
    *,
    fresh_file: bool = False,
    phase: Callable[[str], None] = lambda _: None,
) -> Iterator[Group]:
    """Joins the others and makes the process group; on a clean exit waits for them and takes it down again.

    Raises `RendezvousError` if the ranks don't find together within `timeout_s`. After an error in the block,
    the group is left as it is: taking it down could wait for ranks that are gone.

    Args:
        place: this rank's place in its world.
        mine: its introduction to the others.
        timeout_s: for the start as a whole, and for each collective later on.
        fresh_file: see `open_store`.
        phase: told what is about to be waited for.
    """
    begin = time.monotonic()
    phase(f"opening the store at {place.target}")
    store = open_store(place, timeout_s, fresh_file=fresh_file)
    phase(f"waiting for the other ranks at {place.target}")
    remaining = max(1.0, timeout_s - (time.monotonic() - begin))
    try:
        hellos = meet(store, mine, remaining, str(place.target))
    except RuntimeError as error:
        if isinstance(error, RendezvousError):
            raise
        raise RendezvousError(
            f"rank {place.rank} lost the store at {place.target} while waiting for the others.",
            hint="see the output of rank 0, which serves the store.",
        ) from error
    phase("connecting Gloo to the other ranks")
    dist.init_process_group(
        "gloo",
        store=PrefixStore("pyddpdiag/group", store),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    yield Group(place, store, hellos)
    with warnings.catch_warnings():
        # On some versions, barrier() without devices warns about accelerators that this group doesn't use.
        warnings.simplefilter("ignore")
        dist.barrier()
    dist.destroy_process_group()
