"""Averaging gradients without DDP, by GradientReducer and by hand, in a process that is a rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist

import pyddpdiag
from harness.gradients import LISTS
from harness.rounds import interleave
from pyddpdiag.ranks.session import Session

VARIANTS = ("torch by hand f32", "torch by hand bf16", "GradientReducer f32", "GradientReducer bf16")
SHARED = "GradientReducer shared f32"
"""In memory that the ranks share."""
BY_HAND_VIEWS, SHARED_VIEWS = "torch by hand views f32", "GradientReducer shared views f32"
"""Gradients stay where they were averaged, instead of being copied back."""

PARTS = ("backward alone", "all_reduce alone f32", "all_reduce alone bf16")
"""What no loop can do without, each by itself."""


def _parameters(kind: str) -> list[torch.Tensor]:
    return [t.requires_grad_() for t in LISTS[kind]()]


def _backward(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None
    torch.stack([p.square().sum() for p in parameters]).sum().backward()


def _by_hand(kind: str, dtype: torch.dtype, stay: bool = False) -> Callable[[], float]:
    """One flat buffer, allocated before; copied to, scaled, reduced and copied from by torch's fused loops."""
    parameters = _parameters(kind)
    buffer = torch.empty(sum(p.numel() for p in parameters), dtype=dtype)
    views, offset = [], 0
    for parameter in parameters:
        views.append(buffer[offset : offset + parameter.numel()].view(parameter.shape))
        offset += parameter.numel()

    def step() -> float:
        begin = time.perf_counter()
        _backward(parameters)
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_copy_(views, gradients)
        buffer.mul_(1 / dist.get_world_size())
        dist.all_reduce(buffer)
        if stay:
            for parameter, view in zip(parameters, views, strict=True):
                parameter.grad = view
        else:
            torch._foreach_copy_(gradients, views)
        return time.perf_counter() - begin

    return step


def _reducer(
    kind: str, dtype: torch.dtype, shared_memory: Literal["off", "require"] = "off", stay: bool = False
) -> Callable[[], float]:
    parameters = _parameters(kind)
    reducer = pyddpdiag.GradientReducer(
        parameters, dtype=dtype, shared_memory=shared_memory, gradient_as_bucket_view=stay
    )

    def step() -> float:
        begin = time.perf_counter()
        _backward(parameters)
        reducer.all_reduce()
        return time.perf_counter() - begin

    return step


def _backward_alone(kind: str) -> Callable[[], float]:
    parameters = _parameters(kind)

    def step() -> float:
        begin = time.perf_counter()
        _backward(parameters)
        return time.perf_counter() - begin

    return step


def _all_reduce_alone(kind: str, dtype: torch.dtype) -> Callable[[], float]:
    buffer = torch.zeros(sum(p.numel() for p in _parameters(kind)), dtype=dtype)

    def step() -> float:
        # Not the time until the other rank is here too.
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(buffer)
        return time.perf_counter() - begin

    return step


def _step(kind: str, name: str) -> Callable[[], float]:
    """The step of a name in VARIANTS or PARTS, or of another one above."""
    if name == "backward alone":
        return _backward_alone(kind)
    what, _, last = name.rpartition(" ")
    dtype = torch.bfloat16 if last == "bf16" else torch.float32
    make = {
        "torch by hand": _by_hand,
        "torch by hand views": partial(_by_hand, stay=True),
        "GradientReducer": _reducer,
        "GradientReducer shared": partial(_reducer, shared_memory="require"),
        "GradientReducer shared views": partial(_reducer, shared_memory="require", stay=True),
        "all_reduce alone": _all_reduce_alone,
    }
    return make[what](kind, dtype)


def measure(session: Session, kind: str, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Seconds per backward pass and reduction of each variant in each round, and of its parts."""
    del session
    steps = {name: _step(kind, name) for name in names}
    for step in steps.values():
        step()
    return interleave(steps, rounds)
