"""Averaging gradients without DDP, by GradientReducer and by hand, in a process that is a rank."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import pyddpdiag
from harness.gradients import LISTS
from harness.ranks import join
from pyddpdiag.bench.intervals import interleave

VARIANTS = ("torch by hand f32", "torch by hand bf16", "GradientReducer f32", "GradientReducer bf16")
PARTS = ("backward alone", "all_reduce alone f32", "all_reduce alone bf16")
"""What no loop can do without, each by itself."""


def _parameters(kind: str) -> list[torch.Tensor]:
    return [t.requires_grad_() for t in LISTS[kind]()]


def _backward(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None
    torch.stack([p.square().sum() for p in parameters]).sum().backward()


def _by_hand(kind: str, dtype: torch.dtype) -> Callable[[], float]:
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
        torch._foreach_copy_(gradients, views)
        return time.perf_counter() - begin

    return step


def _reducer(kind: str, dtype: torch.dtype) -> Callable[[], float]:
    parameters = _parameters(kind)
    reducer = pyddpdiag.GradientReducer(parameters, dtype=dtype)

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


def measure(rank: int, world_size: int, meeting: str, kind: str, rounds: int) -> dict[str, list[float]]:
    """Seconds per backward pass and reduction of each variant in each round, and of its parts."""
    join(rank, world_size, meeting)
    variants = {"backward alone": _backward_alone(kind)}
    for name in VARIANTS:
        dtype = torch.bfloat16 if name.endswith("bf16") else torch.float32
        variants[name] = (_by_hand if "hand" in name else _reducer)(kind, dtype)
        variants[f"all_reduce alone {name.rpartition(' ')[2]}"] = _all_reduce_alone(kind, dtype)
    for step in variants.values():
        step()
    measured = interleave(variants, rounds)
    dist.destroy_process_group()
    return measured
