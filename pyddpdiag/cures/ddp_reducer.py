"""Replaces the reducer of a living DDP module between two passes: another bucket size, views or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.record import attachments

_NEEDED = (
    "_build_params_for_reducer",
    "_build_debug_param_to_name_mapping",
    "_ddp_init_helper",
    "_bucket_config",
)


@dataclass(frozen=True)
class Layout:
    """What a reducer is made with: torch's own configuration of buckets, and whether gradients are views."""

    config: Any
    views: bool


def why_not(ddp: DistributedDataParallel) -> str:
    """Why its reducer cannot be replaced; empty: it can."""
    missing = [name for name in _NEEDED if not hasattr(ddp, name)]
    if missing:
        return (
            f"torch {torch.__version__} has no {missing[0]}, which a new bucket layout needs; use --restart"
        )
    features = {
        "static_graph=True": ddp.static_graph,
        "torch's python_reducer": getattr(ddp, "_use_python_reducer", False),
        "DDP's own mixed_precision": ddp.mixed_precision is not None,
        "delay_all_reduce_named_params": bool(getattr(ddp, "_delay_all_reduce_params", [])),
        "an optimizer in the backward pass": bool(getattr(ddp, "_optim_in_backward", False)),
        "a communication hook that the script registered": bool(ddp._comm_hooks),
    }
    used = [name for name, is_used in features.items() if is_used]
    return f"a module with {used[0]} keeps its reducer" if used else ""


def layout_of(ddp: DistributedDataParallel) -> Layout:
    """That of its reducer."""
    return Layout(ddp._bucket_config, bool(ddp.gradient_as_bucket_view))


def with_sizes(ddp: DistributedDataParallel, sizes_mb: Sequence[float]) -> Any:
    """torch's configuration for another size of all buckets, or for one of each, in MiB."""
    # torch annotates a whole number, and takes any.
    make: Any = type(ddp._bucket_config).create
    several = len(sizes_mb) > 1
    return make(None if several else sizes_mb[0], list(sizes_mb) if several else None, False)


def replace_reducer(ddp: DistributedDataParallel, layout: Layout) -> None:
    """Gives an attached module another reducer, to which its recorder's hook is attached again.

    Between two passes, on all ranks before the same pass. Gradients keep their values; where they no longer are views,
    they get memory of their own.

    Raises:
        RuntimeError: torch refuses.
    """
    attachments.before_new_reducer(ddp)
    if ddp.gradient_as_bucket_view and not layout.views:
        _own_memory(ddp)
    config = layout.config
    ddp._bucket_config = config
    ddp.bucket_bytes_cap = config.bucket_bytes_cap
    ddp.bucket_bytes_cap_list = list(config.per_bucket_bytes_caps)
    ddp.bucket_bytes_cap_default = config.first_bucket_bytes_cap < config.bucket_bytes_cap
    ddp.gradient_as_bucket_view = layout.views
    ddp._has_rebuilt_buckets = False
    parameters, sparse = ddp._build_params_for_reducer()  # type: ignore[no-untyped-call]
    names = ddp._build_debug_param_to_name_mapping(parameters)  # type: ignore[no-untyped-call]
    # The old one's hooks on the gradients must be gone first, whoever else holds it: two would sum each gradient twice.
    # After a failure there is none.
    old = ddp.__dict__.pop("reducer", None)
    if old is not None:
        old._remove_autograd_hooks()
    ddp.logger = None
    del old
    ddp._ddp_init_helper(parameters, sparse, names, ddp.static_graph)  # type: ignore[no-untyped-call]
    attachments.after_new_reducer(ddp)


def _own_memory(ddp: DistributedDataParallel) -> None:
    for parameter in ddp.module.parameters():
        gradient = parameter.grad
        if gradient is not None and gradient._is_view():
            parameter.grad = gradient.detach().clone()


__all__ = ["Layout", "layout_of", "replace_reducer", "why_not", "with_sizes"]
