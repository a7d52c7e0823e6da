"""`pyddpdiag.init_process_group`: torch's, with the checks first that turn a freeze into an error."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyddpdiag import system
from pyddpdiag.errors import NativeModuleError, RendezvousError
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.interrupts import deadline
from pyddpdiag.ranks.meeting import introduce
from pyddpdiag.ranks.rendezvous import Place, TcpTarget, join_url

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_START = timedelta(minutes=5)
# What has to end by then ends by itself in time, unless native code is stuck.
_SLACK_S = 20.0
_calls = itertools.count()


def init_process_group(
    backend: str | None = "gloo",
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    *,
    start_timeout: timedelta = _START,
    **options: Any,
) -> None:
    """Makes the default process group as `torch.distributed.init_process_group` does, or says why it cannot be made.

    All ranks must call it. Before anything can hang it checks the interfaces, the rendezvous file (stale, locked) and
    the port (held by another program). Right after the ranks have met it compares their world sizes and settings. A
    file of an earlier run is removed only if every process in it is known to have ended.

    Args:
        backend: see torch.
        init_method: file://, tcp:// or env:// (the default).
        timeout: of the group's collectives; torch's default if None.
        world_size: with file:// and tcp://; env:// has its variables.
        rank: as `world_size`.
        store: meet there instead; needs `world_size` and `rank`.
        start_timeout: for the ranks to come and to connect.
        options: passed on to torch.

    Raises:
        RendezvousError: the ranks do not meet; the message names those that are missing, or the difference.
        UsageError: an argument or GLOO_SOCKET_IFNAME is wrong.
        NativeModuleError: torch is not installed.
    """
    try:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        from pyddpdiag.ranks.group import connect
    except ImportError as error:
        raise NativeModuleError(
            f"init_process_group needs torch: {error}", hint="pip install torch."
        ) from error
    place = _place(init_method, None if world_size < 0 else world_size, None if rank < 0 else rank, store)
    _check_interfaces()
    seconds = start_timeout.total_seconds()
    if store is None:
        from pyddpdiag.ranks.group import open_store

        with deadline(seconds + _SLACK_S, lambda: _give_up(place, seconds)):
            store = open_store(place, seconds)
    group_timeout = timeout if timeout is not None else dist.default_pg_timeout
    connect(
        place,
        introduce(place, dict(_settings(backend)), None),
        seconds,
        # Each start in a store that outlives it has keys of its own.
        store=PrefixStore(f"start-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{next(_calls)}", store),
        backend=backend,
        group_timeout_s=group_timeout.total_seconds(),
        options=options,
    )


def _place(init_method: str | None, world_size: int | None, rank: int | None, store: Store | None) -> Place:
    if store is None:
        return join_url(init_method or "env://", world_size, rank)
    if world_size is None or rank is None or init_method is not None:
        raise RendezvousError(
            "a store needs world_size and rank, and no init_method.",
            hint="see torch.distributed.init_process_group.",
        )
    return Place(rank, world_size, world_size, TcpTarget("the given store", 0))


def _check_interfaces() -> None:
    names = os.environ.get(interfaces.VARIABLE, "")
    if names:
        # As torch reads them: blanks belong to the names.
        interfaces.check(tuple(names.split(",")), f"from {interfaces.VARIABLE}")


def _settings(backend: str | None) -> Iterator[tuple[str, str]]:
    """What all ranks must have in common."""
    import torch

    yield "the backend", str(backend)
    yield "the operating system", system.NAME
    yield "the version of torch", ".".join(torch.__version__.split(".")[:2])
    for name in ("TORCH_GLOO_LAZY_INIT", "GLOO_DEVICE_TRANSPORT"):
        yield name, os.environ.get(name, "") or "unset"
    names = os.environ.get(interfaces.VARIABLE, "")
    yield f"the number of interfaces in {interfaces.VARIABLE}", str(len(names.split(",")))


def _give_up(place: Place, seconds: float) -> None:
    """Native code is stuck in the store, and nothing but the end of the process ends that."""
    import sys

    from pyddpdiag.output import say

    say(
        f"error: rank {place.rank}: torch's store at {place.target} did not answer within {seconds:g} s and cannot be "
        "interrupted; this process ends.\n  hint: run 'pyddpdiag doctor' with the same --rendezvous.",
        sys.stderr,
    )
    sys.stderr.flush()
    os._exit(2)
