"""Flattening beside memcpy and beside the best preallocated torch code for the same result.

Run: python3 dev.py bench benchmarks/bench_flatten.py
All variants of a case run interleaved in one process; the figures are medians over rounds of ratios within a round,
with 95% intervals, and stand in the JSON under `extra_info`. What pytest-benchmark itself times is the whole case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from harness.gradients import LISTS, memcpy, torch_foreach

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.bench.intervals import estimate, interleave, ratio

ROUNDS = 40
SCALE = 0.5


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Torch with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _timed(run: Callable[[], object], repeats: int) -> Callable[[], float]:
    def once() -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            run()
        return (time.perf_counter() - begin) / repeats

    run()
    return once


def _flatten(tensors: list[torch.Tensor], dtype: torch.dtype) -> Callable[[], object]:
    out = torch.empty(sum(t.numel() for t in tensors), dtype=dtype)
    return lambda: pyddpdiag.flatten(tensors, out=out, scale=SCALE)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", LISTS)
def test_flatten(benchmark: Any, kind: str, threads: int) -> None:
    with _threads(threads):
        tensors = LISTS[kind]()
        repeats = 1 if kind == "resnet50" else 10
        variants = {
            "memcpy": memcpy(tensors),
            "torch f32": torch_foreach(tensors, torch.float32, SCALE),
            "torch bf16": torch_foreach(tensors, torch.bfloat16, SCALE),
            "flatten f32": _flatten(tensors, torch.float32),
            "flatten bf16": _flatten(tensors, torch.bfloat16),
        }
        timed = {name: _timed(run, repeats) for name, run in variants.items()}
        measured = benchmark.pedantic(interleave, args=(timed, ROUNDS), rounds=1, iterations=1)
    figures: dict[str, Any] = {}
    for name in variants:
        figures[name] = {
            "ms": estimate([1e3 * s for s in measured[name]]).as_dict(),
            "ratio_to_memcpy": ratio(measured, name, "memcpy").as_dict(),
            "best_to_best_memcpy": min(measured[name]) / min(measured["memcpy"]),
        }
        print(
            f"\n{kind} {threads} threads: {name:13} {figures[name]['ms']['median']:8.3f} ms, / memcpy "
            f"{ratio(measured, name, 'memcpy')}, best/best {figures[name]['best_to_best_memcpy']:.2f}",
            end="",
        )
    for dtype in ("f32", "bf16"):
        speedup = ratio(measured, f"torch {dtype}", f"flatten {dtype}")
        figures[f"torch / flatten {dtype}"] = speedup.as_dict()
        print(f"\n{kind} {threads} threads: torch / flatten {dtype} {speedup}", end="")
    benchmark.extra_info.update(list=kind, threads=threads, rounds=ROUNDS, figures=figures)


@pytest.mark.parametrize("mib", [2, 8, 32, 128])
def test_stores_past_the_caches(benchmark: Any, mib: int) -> None:
    """From what size on they pay: the reason for `pyddpdiag.flattening.STREAMING_ABOVE`."""
    with _threads(1):
        tensors = [torch.randn(mib * 2**18)]
        out = torch.empty_like(tensors[0])

        def flatten(above: int) -> Callable[[], object]:
            return lambda: _native.flatten(tensors, out, SCALE, None, above)

        variants = {"memcpy": memcpy(tensors), "through": flatten(2**62), "past": flatten(0)}
        timed = {name: _timed(run, max(1, 64 // mib)) for name, run in variants.items()}
        measured = benchmark.pedantic(interleave, args=(timed, ROUNDS), rounds=1, iterations=1)
    figures = {name: ratio(measured, name, "memcpy").as_dict() for name in ("through", "past")}
    past = ratio(measured, "past", "through")
    print(f"\n{mib} MiB: past / through {past}, over memcpy {figures}", end="")
    benchmark.extra_info.update(mib=mib, rounds=ROUNDS, over_memcpy=figures, past_over_through=past.as_dict())
