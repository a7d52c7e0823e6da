"""A hook of ours that a script registered itself, by `ddp.register_comm_hook`: what DDP says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.record.bucket_hook import RecorderHook
from pyddpdiag.record.copied import CopiedRecorder
from pyddpdiag.record.recording import Recording

Hook = TypeVar("Hook", bound=Callable[..., Any])
_averaging: list[Callable[..., Any]] = []


@dataclass(frozen=True)
class Registered:
    """Such a hook, as long as its module is not detached.

    `recorder`: None where it is not bound to one: it takes the one that was opened last. `group`: the one that the
    script named as its state, to reduce over.
    """

    recorder: Recording | None
    group: dist.ProcessGroup | None


class Probed:
    """Another hook with our probes around it: it keeps averaging as it does."""


def averaging(hook: Hook) -> Hook:
    """Makes a function known as one of our hooks that average: another one of ours may do its work."""
    _averaging.append(hook)
    return hook


def has_hook(ddp: DistributedDataParallel) -> bool:
    """Whether DDP has a hook that `register_comm_hook` gave it. A copy of such a module only has its name."""
    logged = ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return bool(ddp._comm_hooks) and bool(logged.get("comm_hook"))


def find(ddp: DistributedDataParallel) -> Registered | None:
    """The hook of ours that was registered with a module; None: there is none, or another one."""
    if not has_hook(ddp):
        return None
    # DDP refuses all after the first, and lists them nevertheless.
    hook, state = ddp._comm_hooks[0]
    recorder: Any
    if isinstance(hook, RecorderHook):
        recorder = hook.recorder
    elif hook in _averaging:
        recorder = state
    else:
        return None
    if isinstance(recorder, CopiedRecorder):
        return None
    group = state if isinstance(state, dist.ProcessGroup) else None
    return Registered(None if recorder is None or recorder is group else recorder, group)


def of_others(ddp: DistributedDataParallel) -> tuple[str, str]:
    """Whose hook it is, where it is not ours, and how its buckets can be recorded."""
    hook: Any = ddp._comm_hooks[0][0]
    name = getattr(hook, "__name__", type(hook).__name__)
    if isinstance(hook, Probed):
        return (
            f"'{name}' with the probes around it",
            "its buckets are recorded; do not attach another recorder.",
        )
    if getattr(ddp, "mixed_precision", None) is not None:
        return (
            f"torch's own '{name}', which DistributedDataParallel(mixed_precision=...) registers",
            "`pyddpdiag run` puts pyddpdiag.timed() around it; so does a class of your own "
            "(pyddpdiag help integrations).",
        )
    return (
        f"'{name}'",
        f"DDP takes one per module: register pyddpdiag.timed({name}) in its place, and do not attach.",
    )
