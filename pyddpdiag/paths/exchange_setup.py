"""What the exchange of 16-bit buckets (csrc/torch/reduce/sixteen_bit/exchange.hpp) needs to know about a group.

It needs the host of each rank, and a separate Gloo group for messages. Messages count in a group's sequence
number like collectives, but are sent whenever a bucket happens to be done, and the numbers of the training's
group must stay the same on all ranks. The separate group uses the same interfaces as the training's. The
environment may not name those any more, so `dist.new_group`, which would use the current ones, does not do.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError
from pyddpdiag.paths import beside, gathering, gloo


def prepare(core: _native.Recorder, group: dist.ProcessGroup) -> None:
    """Prepares the core at the first call, made by all ranks of `group` together; they may retry a failure.

    Raises:
        ReductionError: some ranks did not take part.
    """
    if group.size() == 1 or core.knows_peers(group):
        return
    messages = None
    try:
        with gathering.meet(group, "exchange", _host(core)) as meeting:
            hosts = meeting.values
            # Two ranks of one host need no messages beside the all-to-all.
            if len(set(hosts)) > 1 or group.size() > 2:
                messages = _native.OwnBackend(
                    dist.ProcessGroupGloo(meeting.store, group.rank(), group.size(), options_like(group))
                )
    except RuntimeError as error:
        raise ReductionError(
            f"rank {dist.get_rank()}: cannot reach the other ranks to set up 16-bit gradients: {error}",
            hint="compress on all ranks or on none, with the same hook.",
        ) from error
    if messages is not None:
        beside.hold(group, messages)
    core.set_peers(group, hosts, messages)


def _host(core: _native.Recorder) -> str:
    # Two containers on one machine may be as far apart as two machines.
    try:
        network = str(Path("/proc/self/ns/net").readlink())
    except OSError:
        network = ""
    # The clock's identity distinguishes machines of the same name.
    return f"{socket.gethostname()} {network} {core.clock()['identity']}"


def options_like(group: dist.ProcessGroup) -> Any:
    """Those of a Gloo group beside this one: its interfaces and timeout, with one worker."""
    theirs = gloo.options_of(group)
    made: Any = dist.ProcessGroupGloo
    options = made._Options()
    options._devices = theirs._devices
    options._timeout = theirs._timeout
    # Gloo's workers do not run messages.
    options._threads = 1
    return options
