"""The process group over which the sums of 16-bit buckets are handed around (csrc/torch/bucket_exchange.hpp).

Of its own: messages count in a group's sequence number as collectives do, but are sent when a bucket happens to be
done. The numbers of the training's group must stay the same on all ranks.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError


def prepare(core: _native.Recorder, group: dist.ProcessGroup) -> None:
    """Makes the group at the first call. All ranks of `group` call this together.

    Two ranks need none: each adds up what it got from the other.

    Raises:
        ReductionError: the ranks did not all come.
    """
    if group.size() <= 2 or core.has_messages(group):
        return
    try:
        messages = dist.new_group(
            dist.get_process_group_ranks(group),
            timeout=_timeout(group),
            backend="gloo",
            use_local_synchronization=True,
        )
    except RuntimeError as error:
        raise ReductionError(
            f"rank {dist.get_rank()}: cannot reach the other ranks to set up 16-bit gradients: {error}",
            hint="compress on all ranks or on none, with the same hook.",
        ) from error
    core.set_messages(group, messages)


def _timeout(group: dist.ProcessGroup) -> timedelta:
    options = group._get_backend(torch.device("cpu")).options
    return options._timeout


__all__ = ["prepare"]
