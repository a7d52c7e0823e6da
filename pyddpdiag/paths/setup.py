"""From what a user asks for to what is done with the buckets of a group: one decision, in one object."""

from __future__ import annotations

from typing import Final

import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.paths import exchange_setup, lanes, shared_setup
from pyddpdiag.paths.options import Compress, PathRequest

_COMPRESSIONS: Final[dict[Compress | None, _native.Compression]] = {
    None: _native.Compression.none,
    "bf16": _native.Compression.bf16,
    "fp16": _native.Compression.fp16,
}


def prepare(core: _native.Recorder, group: dist.ProcessGroup, request: PathRequest) -> _native.PathOptions:
    """Sets up at the first call what the request needs; made by all ranks of `group` together.

    `group`: all of its ranks call this. `request`: the same on all ranks.

    Returns:
        The same on all ranks.

    Raises:
        ReductionError: some ranks did not take part; or they do not share memory, and must; or their lanes do not fit.
    """
    shared = shared_setup.prepare(core, group, request.shared_memory)
    if request.compress is not None and shared is None:
        exchange_setup.prepare(core, group)
    over = None
    if request.lanes:
        from pyddpdiag.paths import lanes_setup  # few runs have any, and a rank's start is short

        over = lanes_setup.prepare(core, group, lanes.parse(request.lanes))
    return _native.PathOptions(_COMPRESSIONS[request.compress], request.error_feedback, shared, over)
