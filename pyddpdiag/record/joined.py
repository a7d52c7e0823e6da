"""The passes of DDP's join() on a rank without data: its all-reduces of zeros count as the module's buckets."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native


def watch(module_of: Callable[[DistributedDataParallel], _native.Module | None]) -> None:
    """Has these passes noted from now on, of modules for which `module_of` knows the native one."""
    own = DistributedDataParallel._match_all_reduce_for_bwd_pass
    if hasattr(own, "_noted_by_pyddpdiag"):
        return

    @functools.wraps(own)
    def noted(self: DistributedDataParallel) -> None:
        module = module_of(self)
        mark = None if module is None else _native.JoinedPass(module)
        try:
            own(self)  # type: ignore[no-untyped-call]
        finally:
            del mark

    noted._noted_by_pyddpdiag = True  # type: ignore[attr-defined]
    DistributedDataParallel._match_all_reduce_for_bwd_pass = noted  # type: ignore[method-assign]
