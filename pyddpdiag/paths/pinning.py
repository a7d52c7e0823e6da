"""Lets CUDA devices (and those of ROCm, by the same name) reach shared memory by themselves.

c10 can allocate such memory, and has no way to register memory that exists. So the native module calls back.
"""

from __future__ import annotations

import atexit
import contextlib
import functools

import torch

from pyddpdiag import _native

# For the contexts of all devices.
_PORTABLE = 1


@functools.cache
def arrange() -> None:
    """Buckets' staging memory is registered from now on, where that is possible; elsewhere copies are slower."""
    if torch.version.cuda is None and torch.version.hip is None:
        return
    _native.pin_with("cuda", _pin, _unpin)
    # A thread that lets go of memory must not ask an interpreter that is shutting down.
    atexit.register(_native.end_pinning)


def _pin(address: int, size: int) -> bool:
    pinned = int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0  # type: ignore[no-untyped-call]
    if not pinned:
        # CUDA would report the failure again, of the next kernel: let that be this one.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
    return pinned


def _unpin(address: int) -> bool:
    return int(torch.cuda.cudart().cudaHostUnregister(address)) == 0  # type: ignore[no-untyped-call]
