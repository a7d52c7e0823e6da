"""The communication hooks that can be measured, by name.

DDP inspects a hook's annotations and does not accept strings: no `from __future__ import annotations` here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.paths.averaging import Averaging, HookKind, from_label


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


def _torch_bf16(ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    ddp.register_comm_hook(group, torch_bf16)


_OTHERS = {
    "plain": Hook(_plain, twin=True),
    "noop": Hook(_noop),
    "builtin": Hook(_builtin, twin=True),
    "torch_bf16": Hook(_torch_bf16),
}


def find(name: str) -> Hook:
    """The hook of this name, or of this label of an `Averaging`."""
    way = from_label(name)
    if name in _OTHERS or way is None:
        return _OTHERS[name]
    return Hook(partial(_recorded, way), records=True)


def _recorded(way: Averaging, ddp: DistributedDataParallel, recorder: Any, group: Any) -> None:
    if way.hook is HookKind.NATIVE:
        recorder.attach(ddp, **way.path)
    else:
        ddp.register_comm_hook(recorder, recorder.hook(**way.path) if way.path else pyddpdiag.timed_allreduce)
