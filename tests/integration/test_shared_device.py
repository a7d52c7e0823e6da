"""Buckets on an accelerator that ranks of one host average in shared memory, seen on a device of our own (tests/device).

Each stream of it is a thread that does its work in order and late, so that whoever does not wait for it reads the values
of before.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support import device
from support.hooked import in_order
from support.own_hosts import only_own_host
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.record import shared_setup
from pyddpdiag.trace.layout import BucketTime, Flag, Kind
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(not device.compiler(), reason="there is no C++ compiler here")

LATE_US = 3000
PASSES = 4
KILL = 9
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COUNTS = (1, 1000, 100_001)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(device.build(tmp_path_factory.mktemp("device")))


def _ready(library: str, pins: bool) -> tuple[Any, _native.SharedRanks]:
    late = device.load(Path(library))
    if pins:
        _native.pin_with(device.NAME, lambda *of: late.pin(*of) or True, lambda of: late.unpin(of) or True)
    assert dist.group.WORLD is not None
    ranks, found = shared_setup.share(dist.group.WORLD, "require")
    assert ranks is not None and found == shared_setup.USED
    return late, ranks


def _addend(rank: int, step: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * step + rank)).to(dtype)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def _sums(rank: int, world: int, library: str, pins: bool, hosts: list[int]) -> dict[str, Any]:
    """The bits of each pass's sums, from the CPU and from the device, begun in turn and all at once."""
    only_own_host(rank, hosts)
    late, ranks = _ready(library, pins)
    cases = [(dtype, count) for dtype in DTYPES for count in COUNTS]
    buffers, places = [], []
    for dtype, count in cases:
        for where in (device.NAME, "cpu"):
            buffers.append(torch.zeros(count, dtype=dtype, device=where))
            places.append(_native.SharedPlace())
    values = [
        [_addend(rank, step, dtype, count).to(device.NAME) for dtype, count in cases]
        for step in range(PASSES)
    ]
    late.take_blocking_copies()
    late.set_delay(LATE_US)
    found = []
    number = 0
    for step in range(PASSES):
        works = []
        for i, (buffer, place) in enumerate(zip(buffers, places, strict=True)):
            # On the device: late, and nobody waits for it here.
            buffer.copy_(values[step][i // 2], non_blocking=not buffer.is_cpu)
            works.append(ranks.add_up(buffer, number, place))
            number += 1
        for work in works:
            work.wait()
        # On the current stream: it must have been made to wait for the copies back.
        results = [torch.empty_like(buffer).copy_(buffer) for buffer in buffers]
        found.append([_bits(result) for result in results])
    blocking = late.take_blocking_copies()
    exact = [
        torch.stack([_addend(other, PASSES - 1, dtype, count) for other in range(world)]).double().sum(0)
        for dtype, count in cases
    ]
    near = [
        torch.allclose(buffer.cpu().double(), sums, rtol=0.02, atol=0.05)
        for buffer, sums in zip(buffers[::2], exact, strict=True)
    ]
    del buffers, places, ranks
    gc.collect()
    time.sleep(0.5)  # the worker lets go of the last
    return {
        "bits": found,
        "near": near,
        "blocking": blocking,
        "pinned": list(late.pinned_and_unpinned()),
    }


@pytest.mark.parametrize(
    ("pins", "hosts"),
    [(True, [0, 0]), (False, [0, 0]), (True, [0, 0, 0]), (True, [0, 1, 1, 0])],
    ids=["pinned", "not pinned", "3 ranks", "2 hosts"],
)
def test_sums_of_late_streams_have_the_bits_of_the_cpu(
    tmp_path: Path, library: str, pins: bool, hosts: list[int]
) -> None:
    answers = run_ranks(_sums, len(hosts), tmp_path, library, pins, hosts)
    for answer in answers:
        assert all(answer["near"])
        for bits in answer["bits"]:
            assert bits[::2] == bits[1::2]
        assert len({bits[2] for bits in answer["bits"]}) == PASSES
        buckets = len(DTYPES) * len(COUNTS)
        # Each bucket has one staging buffer in all passes, which is unpinned before it is gone.
        assert answer["pinned"] == ([buckets, buckets] if pins else [0, 0])
        # Out and back, if the device cannot reach the memory by itself.
        assert answer["blocking"] == (0 if pins else 2 * buckets * PASSES)
    assert all(answer["bits"] == answers[0]["bits"] for answer in answers)
