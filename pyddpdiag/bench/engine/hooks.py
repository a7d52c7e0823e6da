"""The communication hooks that can be measured, by name.

DDP inspects a hook's annotations and does not accept strings: no `from __future__ import annotations` here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag


@dataclass(frozen=True)
class Hook:
    """One way to average gradients.

    Attributes:
        register: puts it into a DDP module, with the recorder if it records and the process group.
        records: whether it writes a trace of its own.
        twin: whether a trace by the native hook describes it too: the same bytes, reduced the same way.
    """

    register: Callable[[DistributedDataParallel, Any, Any], None]
    records: bool = False
    twin: bool = False


def torch_bf16(
    state: Any,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """torch's bf16_compress_hook under another name: DDP refuses that name on builds without CUDA."""
    return default_hooks.bf16_compress_hook(state, bucket)


def _plain(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    pass


def _noop(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    ddp.register_comm_hook(None, debugging_hooks.noop_hook)


def _builtin(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    from torch._C._distributed_c10d import BuiltinCommHookType

    ddp._register_builtin_comm_hook(BuiltinCommHookType.ALLREDUCE)  # type: ignore[no-untyped-call]


def _native(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    recorder.attach(ddp)


def _timed(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)


def _torch_bf16(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    ddp.register_comm_hook(group, torch_bf16)


def _bf16(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    recorder.attach(ddp, compress="bf16")


def _shared(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    recorder.attach(ddp, shared_memory="auto")


def _timed_bf16(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    ddp.register_comm_hook(recorder, pyddpdiag.timed_bf16_allreduce)


REGISTRY = {
    "plain": Hook(_plain, twin=True),
    "noop": Hook(_noop),
    "builtin": Hook(_builtin, twin=True),
    "native": Hook(_native, records=True),
    "timed": Hook(_timed, records=True),
    "torch_bf16": Hook(_torch_bf16),
    "timed_bf16": Hook(_timed_bf16, records=True),
    "bf16": Hook(_bf16, records=True),
    "shared": Hook(_shared, records=True),
}


def find(name: str) -> Hook:
    """The hook of this name."""
    return REGISTRY[name]
