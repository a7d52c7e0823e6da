"""Flattening beside memcpy and beside the best preallocated torch code for the same result.

Run: python3 dev.py bench benchmarks/bench_flatten.py
The variants of a list and number of threads run interleaved in one process; a round is one call, or the mean of several
where one is short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from harness.gradients import LISTS, memcpy, torch_foreach
from harness.rounds import interleave
from harness.row import Row, ratios, speedups

import pyddpdiag
from pyddpdiag import _native

ROUNDS = 40
SCALE = 0.5
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
VARIANTS = ("memcpy", "torch f32", "torch bf16", "flatten f32", "flatten bf16")
STORES = ("memcpy", "through", "past")


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


def _variant(name: str, tensors: list[torch.Tensor]) -> Callable[[], object]:
    if name == "memcpy":
        return memcpy(tensors)
    what, _, dtype = name.partition(" ")
    if what == "torch":
        return torch_foreach(tensors, DTYPES[dtype], SCALE)
    return _flatten(tensors, DTYPES[dtype])


def _measure(names: Sequence[str], kind: str, threads: int, rounds: int) -> dict[str, list[float]]:
    with _threads(threads):
        tensors = LISTS[kind]()
        repeats = 1 if kind == "resnet50" else 10
        timed = {name: _timed(_variant(name, tensors), repeats) for name in names}
        return interleave(timed, rounds)


def _torch_like(variant: str) -> list[str]:
    """Torch's code for the same result."""
    return [variant.replace("flatten", "torch")] if variant.startswith("flatten") else []


def _bases(variant: str) -> list[str]:
    return [] if variant == "memcpy" else ["memcpy", *_torch_like(variant)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", LISTS)
def test_flatten(row: Row, kind: str, threads: int, variant: str) -> None:
    measured = row.once(
        "variant", lambda names: _measure(names, kind, threads, row.rounds(ROUNDS)), needs=_bases
    )
    row.report(
        f"flatten {kind}, {threads} thread{'s' * (threads > 1)}",
        measured[variant],
        ratio_to=ratios(measured, variant, _bases(variant)[:1]),
        speedup_over=speedups(measured, variant, _torch_like(variant)),
        list=kind,
        threads=threads,
    )


def _measure_stores(names: Sequence[str], mib: int, rounds: int) -> dict[str, list[float]]:
    with _threads(1):
        tensors = [torch.randn(mib * 2**18)]
        out = torch.empty_like(tensors[0])

        def flatten(above: int) -> Callable[[], object]:
            return lambda: _native.flatten(tensors, out, SCALE, None, above)

        variants = {"memcpy": memcpy(tensors), "through": flatten(2**62), "past": flatten(0)}
        timed = {name: _timed(variants[name], max(1, 64 // mib)) for name in names}
        return interleave(timed, rounds)


def _store_bases(variant: str) -> tuple[str, ...]:
    return STORES[: STORES.index(variant)]


@pytest.mark.parametrize("variant", STORES)
@pytest.mark.parametrize("mib", [2, 8, 32, 128])
def test_stores_past_the_caches(row: Row, mib: int, variant: str) -> None:
    """From what size on they pay: the reason for `pyddpdiag.gradients.flattening.STREAMING_ABOVE`."""
    measured = row.once(
        "variant", lambda names: _measure_stores(names, mib, row.rounds(ROUNDS)), needs=_store_bases
    )
    row.report(
        f"stores, {mib} MiB",
        measured[variant],
        ratio_to=ratios(measured, variant, _store_bases(variant)),
        mib=mib,
    )
