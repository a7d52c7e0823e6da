"""What the exchange of 16-bit buckets needs to know of a process group (csrc/torch/bucket_exchange.hpp).

Are its ranks processes of one host, or are there links between them? And a Gloo group of its own for messages: they
count in a group's sequence number as collectives do, but are sent when a bucket happens to be done, and the numbers of
the training's group must stay the same on all ranks. It is on the same interfaces as that group, which the environment
may not name any more: `dist.new_group` would take those of now.
"""

from __future__ import annotations

import socket
import weakref
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError

# They live as long as the group whose buckets they carry; the core knows them weakly. A hook may reduce by them after
# its recorder was closed.
_messages: weakref.WeakKeyDictionary[dist.ProcessGroup, list[dist.ProcessGroupGloo]] = (
    weakref.WeakKeyDictionary()
)


def prepare(core: _native.Recorder, group: dist.ProcessGroup) -> None:
    """Tells the core at the first call. All ranks of `group` make it together.

    Raises:
        ReductionError: the ranks did not all come.
    """
    if group.size() == 1 or core.exchange_is_set(group):
        return
    made = _messages.setdefault(group, [])
    store = PrefixStore(f"pyddpdiag/exchange/{len(made)}", group.get_group_store())
    options = _options_like(group)
    try:
        over_links = _over_links(store, _host(core), group, options)
        messages = None
        # Two ranks of one host have nothing to say beside the all-to-all.
        if over_links or group.size() > 2:
            messages = dist.ProcessGroupGloo(store, group.rank(), group.size(), options)
            made.append(messages)
    except RuntimeError as error:
        raise ReductionError(
            f"rank {dist.get_rank()}: cannot reach the other ranks to set up 16-bit gradients: {error}",
            hint="compress on all ranks or on none, with the same hook.",
        ) from error
    core.set_exchange(group, over_links, messages)


def _over_links(store: Store, host: str, group: dist.ProcessGroup, options: Any) -> bool:
    keys = [f"host/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], host)
    store.wait(keys, options._timeout)
    return len({store.get(key) for key in keys}) > 1


def _host(core: _native.Recorder) -> str:
    # Two containers of one machine may be as far from each other as two machines.
    try:
        network = str(Path("/proc/self/ns/net").readlink())
    except OSError:
        network = ""
    # Which clock it reads tells apart what has the same name.
    return f"{socket.gethostname()} {network} {core.clock()['identity']}"


def _options_like(group: dist.ProcessGroup) -> Any:
    backend = group._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it. Any: torch's stubs do not have these.
    theirs: Any = getattr(backend, "wrapped_pg", backend).options
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._devices = theirs._devices
    options._timeout = theirs._timeout
    # Messages are not run by the workers.
    options._threads = 1
    return options


__all__ = ["prepare"]
