"""The reducers of a DDP module under trial: the one that DDP made, which stays as it is, and another one beside it.

A reducer acts only in passes for which DDP prepared it: its hooks on the gradients take no notice of others. So the one
that DDP made sleeps while another one is on, and is put back without anything that could fail. Only that is sure to be
what it was: one that DDP made again would take what requires a gradient now, and find its order in later passes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native
from pyddpdiag.errors import UsageError
from pyddpdiag.record import attachments
from pyddpdiag.record.frozen import thawed

_NEEDED: Final = (
    "_build_params_for_reducer",
    "_build_debug_param_to_name_mapping",
    "_ddp_init_helper",
    "_bucket_config",
)
# What DDP makes a reducer with, beside the process group. The script's own values stay in the module: torch.compile and
# copies of the module read them.
_SIZES: Final = ("_bucket_config", "bucket_bytes_cap", "bucket_bytes_cap_list", "bucket_bytes_cap_default")
_SETTINGS: Final = (
    *_SIZES,
    "gradient_as_bucket_view",
    "find_unused_parameters",
    "skip_all_reduce_unused_params",
    "batched_grad_copy",
    "static_graph",
    "mixed_precision",
)


@dataclass(frozen=True)
class Layout:
    """What a reducer is made with: torch's own configuration of buckets, and whether gradients are views."""

    config: Any
    views: bool


@dataclass(frozen=True)
class _Reducer:
    """One, with DDP's logger of it."""

    reducer: Any
    logger: Any
    served: Any = None  # what `attachments` has of it while it sleeps


@dataclass(frozen=True)
class _Parameter:
    """One that the reducer reduces, as it was when the trial began."""

    name: str
    tensor: torch.nn.Parameter
    node: Any  # that accumulates its gradient, and has the reducer's hook
    form: tuple[Any, ...]


class Reducers:
    """Those of one attached module, before its second pass or between two passes.

    Attributes:
        why_not: why it keeps the reducer that it has; empty: it may get another one.
        parameters: that its reducer reduces, by name, in the reducer's order; empty where it keeps its reducer.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._ours: _Reducer | None = None  # the one that DDP made, while another is on
        self._own = Layout(getattr(ddp, "_bucket_config", None), bool(ddp.gradient_as_bucket_view))
        self._settings: tuple[Any, ...] = ()
        self._parameters: list[_Parameter] = []
        self.why_not = _feature(ddp) or self._remember(ddp)

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """That its reducer reduces."""
        return {one.name: one.tensor for one in self._parameters}

    def lacking(self, ddp: DistributedDataParallel) -> list[str]:
        """The parameters that DDP's own reducer holds and the one that is on does not."""
        held = {id(one) for bucket in _native.parameters_of(ddp.reducer) for one in bucket}
        return [one.name for one in self._parameters if id(one.tensor) not in held]

    def put_on(self, ddp: DistributedDataParallel, sizes_mb: Sequence[float], views: bool | None) -> None:
        """Gives the module a reducer of another layout; all ranks do so before the same pass.

        `sizes_mb`: of all buckets, or of each, in MiB; empty: as DDP made them. `views`: `gradient_as_bucket_view`;
        None: as DDP made it.

        Raises:
            RuntimeError, UsageError: it cannot; the module has the reducer that DDP made, as before.
        """
        self.put_back(ddp)
        views = self._own.views if views is None else views
        why = self.why_not or self._changed(ddp) or (self._held() if views else "")
        if why:
            raise UsageError(why)
        new = self._checked(
            self._made(ddp, Layout(_with_sizes(ddp, sizes_mb) if sizes_mb else self._own.config, views))
        )
        own = _Reducer(ddp.reducer, ddp.logger, attachments.before_new_reducer(ddp))
        self._ours = own
        try:
            _set(ddp, new)
            attachments.after_new_reducer(ddp)
        except BaseException:
            self.put_back(ddp)
            raise

    def put_back(self, ddp: DistributedDataParallel) -> None:
        """Gives the module the reducer that DDP made, if another one is on."""
        own = self._ours
        if own is None:
            return
        attachments.before_new_reducer(ddp)
        if not self._own.views:
            self._own_memory()
        other = _Reducer(ddp.reducer, ddp.logger)
        if self._settings[_SETTINGS.index("find_unused_parameters")]:
            # It has noted what the passes of the other one used. Its buckets, which are never rebuilt, stay.
            own.reducer._reset_state()
        _set(ddp, own)
        attachments.after_new_reducer(ddp, own.served)
        other.reducer._remove_autograd_hooks()
        self._ours = None

    def keep(self) -> None:
        """For good: the reducer that DDP made is given up, if another one is on."""
        if self._ours is not None:
            self._ours.reducer._remove_autograd_hooks()
            self._ours = None

    def _remember(self, ddp: DistributedDataParallel) -> str:
        """Notes what the reducer that DDP made holds; why that cannot be known, or ""."""
        logged = ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        noted = {
            "find_unused_parameters": bool(ddp.find_unused_parameters),
            "gradient_as_bucket_view": bool(ddp.gradient_as_bucket_view),
            "bucket_cap_bytes": ddp.bucket_bytes_cap,
        }
        changed = [name for name, value in noted.items() if logged.get(name, value) != value]
        if changed:
            return f"{changed[0]} of the module was changed after it was made"
        buckets = _native.parameters_of(ddp.reducer)
        if _native.expects_sparse(ddp.reducer):
            return "a module with sparse gradients keeps its reducer"
        ids = {id(one) for bucket in buckets for one in bucket}
        found: dict[int, tuple[str, torch.nn.Parameter]] = {}
        for prefix, module in ddp.module.named_modules():
            for name, one in module.named_parameters(recurse=False):
                if id(one) in ids:
                    found.setdefault(id(one), (f"{prefix}.{name}".strip("."), one))
        if len(found) != len(ids):
            return "parameters were replaced or moved after the module was made"
        tensors = [one for _, one in found.values()]
        if not ddp._has_rebuilt_buckets and _assigned(ddp, tensors) != [
            list(map(id, bucket)) for bucket in buckets
        ]:
            return "parameters were moved or changed after the module was made"
        self._parameters = [_Parameter(name, one, _node(one), _form(one)) for name, one in found.values()]
        self._settings = tuple(getattr(ddp, name, None) for name in _SETTINGS)
        return ""

    def _changed(self, ddp: DistributedDataParallel) -> str:
        """What no longer is as it was when DDP made its reducer, so that a new one would do something else."""
        now = tuple(getattr(ddp, name, None) for name in _SETTINGS)
        for name, was, value in zip(_SETTINGS, self._settings, now, strict=True):
            if was is not value and was != value:
                return f"{name} of the module was changed after it was made"
        for one in self._parameters:
            if _form(one.tensor) != one.form or _node(one.tensor) is not one.node:
                return f"'{one.name}' was given another type, shape or place after the module was made"
        return _feature(ddp)

    def _held(self) -> str:
        """Whether somebody holds gradients, which would no longer be the parameters' own after a pass with views."""
        for one in self._parameters:
            if _is_held(one.tensor, shared=self._own.views):
                return f"the script holds the gradient of '{one.name}' itself, which views would replace"
        return ""

    def _own_memory(self) -> None:
        """Gives gradients that are views memory of their own, unless somebody holds them as they are."""
        for one in self._parameters:
            if one.tensor.grad is None or _is_held(one.tensor, shared=True):
                continue
            if one.tensor.grad._is_view():
                one.tensor.grad = one.tensor.grad.detach().clone()

    def _made(self, ddp: DistributedDataParallel, layout: Layout) -> _Reducer:
        """A new reducer, asleep, for exactly the parameters of the one that DDP made."""
        config = layout.config
        had = {name: ddp.__dict__[name] for name in ("reducer", "logger", *_SIZES, "gradient_as_bucket_view")}
        tensors = [one.tensor for one in self._parameters]
        try:
            ddp._bucket_config = config
            ddp.bucket_bytes_cap = config.bucket_bytes_cap
            ddp.bucket_bytes_cap_list = list(config.per_bucket_bytes_caps)
            ddp.bucket_bytes_cap_default = config.first_bucket_bytes_cap < config.bucket_bytes_cap
            ddp.gradient_as_bucket_view = layout.views
            with thawed(tensors):
                ddp._ddp_init_helper(  # type: ignore[no-untyped-call]
                    tensors,
                    [False] * len(tensors),
                    {index: one.name for index, one in enumerate(self._parameters)},
                    False,
                )
            new = _Reducer(ddp.reducer, ddp.logger)
        finally:
            ddp.__dict__.update(had)
        return new

    def _checked(self, new: _Reducer) -> _Reducer:
        """A new reducer, if it holds what the one that DDP made holds."""
        held = {id(one) for bucket in _native.parameters_of(new.reducer) for one in bucket}
        if held != {id(one.tensor) for one in self._parameters}:
            new.reducer._remove_autograd_hooks()
            raise RuntimeError("torch made a reducer of other parameters")
        return new


def _feature(ddp: DistributedDataParallel) -> str:
    """What DDP fixes otherwise than by a reducer alone; "": nothing of that."""
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
        "an optimizer in the backward pass": bool(getattr(ddp, "_optim_in_backward", False))
        or any(hasattr(one, "_in_backward_optimizers") for one in ddp._module_parameters),
        "a communication hook that the script registered": bool(ddp._comm_hooks),
    }
    used = [name for name, is_used in features.items() if is_used]
    return f"a module with {used[0]} keeps its reducer" if used else ""


def _assigned(ddp: DistributedDataParallel, parameters: list[torch.nn.Parameter]) -> list[list[int]]:
    """The buckets that DDP gives these parameters, in this order, before its first pass."""
    config: Any = ddp._bucket_config
    limits, _ = config.compute_bucket_size_limits(
        static_graph=False, find_unused_parameters=ddp.find_unused_parameters
    )
    assign: Any = dist._compute_bucket_assignment_by_size  # type: ignore[attr-defined]
    indices, _ = assign(parameters, limits, [False] * len(parameters))
    return [[id(parameters[index]) for index in bucket] for bucket in reversed(indices)]


def _node(parameter: torch.nn.Parameter) -> Any:
    """What accumulates its gradient. Another type or place of the parameter makes another one, without DDP's hook."""
    with thawed([parameter]):
        return get_gradient_edge(parameter).node


def _is_held(parameter: torch.Tensor, *, shared: bool) -> bool:
    """Whether anything but the parameter refers to its gradient.

    `parameter`: whose gradient nobody else of this package holds. `shared`: its memory is shared with a bucket, so
    that only references of Python's tell.
    """
    if parameter.grad is None:
        return False
    alone = torch.zeros(1, requires_grad=True)
    alone.grad = torch.zeros(1)
    ours, least = _references(parameter), _references(alone)
    if shared:
        return ours[0] > least[0]
    return parameter.grad._is_view() or any(one > other for one, other in zip(ours, least, strict=True))


def _references(parameter: torch.Tensor) -> tuple[int, int, int]:
    """How many there are to its gradient: from Python, to the tensor, and to its memory."""
    gradient: Any = parameter.grad
    native: Any = torch._C
    storage = native._storage_Use_Count(gradient.untyped_storage()._cdata)
    return sys.getrefcount(gradient), gradient._use_count(), storage


def _form(parameter: torch.nn.Parameter) -> tuple[Any, ...]:
    return parameter.shape, parameter.stride(), parameter.dtype, parameter.device


def _with_sizes(ddp: DistributedDataParallel, sizes_mb: Sequence[float]) -> Any:
    """torch's configuration for another size of all buckets, or for one of each, in MiB."""
    # torch annotates a whole number, and takes any.
    make: Any = type(ddp._bucket_config).create
    several = len(sizes_mb) > 1
    return make(None if several else sizes_mb[0], list(sizes_mb) if several else None, False)


def _set(ddp: DistributedDataParallel, one: _Reducer) -> None:
    ddp.reducer, ddp.logger = one.reducer, one.logger
