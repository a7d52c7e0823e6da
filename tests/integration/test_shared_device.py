"""Buckets on an accelerator that ranks average in shared memory, seen on a device of our own (tests/device).

Each stream of it is a thread that does its work in order and late, so that whoever does not wait for it reads the
values of before.
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
from support import added_up, device
from support.hooked import in_order
from support.own_hosts import only_own_host
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag import _native
from pyddpdiag.paths import shared_setup
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
    found = []
    number = 0
    for step in range(PASSES):
        works = []
        # What is late in turn: the gradients, and the copies. One rank is prompt: its CPU buckets must not overtake
        # those of the others' devices.
        us = 0 if rank == 1 else LATE_US
        late.set_delay(*((us, 0) if step % 2 else (0, us)))
        for i, (buffer, place) in enumerate(zip(buffers, places, strict=True)):
            # On the device: late, and nobody waits for it here.
            buffer.copy_(values[step][i // 2], non_blocking=not buffer.is_cpu)
            works.append(ranks.add_up(buffer, number, place))
            number += 1
        for work in works:
            added_up.wait(work)
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
    return {"bits": found, "near": near, "blocking": blocking, "pinned": list(late.pinned_and_unpinned())}


@pytest.mark.parametrize(
    ("pins", "hosts"),
    [(False, [0, 0]), (True, [0, 0, 0]), (True, [0, 1, 1, 0])],
    ids=["not pinned", "pinned", "2 hosts"],
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


def _model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 5))


def _batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * step + rank))


def _gradients(module: nn.Module) -> list[bytes]:
    return [_bits(p.grad) for p in module.parameters() if p.grad is not None]


def _group() -> dist.ProcessGroup:
    """Of all ranks; the recorder sees Gloo on the device, which could not sum what is there."""
    group = dist.new_group(backend=f"cpu:gloo,{device.NAME}:gloo")
    assert group is not None
    return group


def _traced(rank: int, _: int, library: str, folder: str) -> list[bool]:
    """Whether a reducer's and DDP's averages have the bits of those of the same gradients on the CPU."""
    late = device.load(Path(library))
    group = _group()
    there = _model().to(device.NAME)
    here = _model()
    same = []
    with pyddpdiag.Recorder(folder, capacity_mb=1, statistics_interval=1) as recorder:
        reducer, exact = (
            pyddpdiag.GradientReducer(
                model.named_parameters(),
                bucket_cap_mb=0.002,
                process_group=group,
                recorder=recorder,
                shared_memory="require",
            )
            for model in (there, here)
        )
        late.set_delay(LATE_US, LATE_US)
        for step in recorder.steps(range(PASSES)):
            for model in (there, here):
                model.zero_grad()
            there(_batch(rank, step).to(device.NAME)).square().mean().backward()
            here(_batch(rank, step)).square().mean().backward()
            reducer.all_reduce()
            exact.all_reduce()
            same.append(_gradients(there) == _gradients(here))
        for closed in (reducer, exact):
            closed.close()
        # One pass: in the second one, DDP itself would broadcast from the device over Gloo.
        modules = [DistributedDataParallel(m, process_group=group, init_sync=False) for m in (there, here)]
        for ddp in modules:
            ddp.zero_grad()
            recorder.attach(ddp, shared_memory="require")
        modules[0](_batch(rank, 9).to(device.NAME)).square().mean().backward()
        modules[1](_batch(rank, 9)).square().mean().backward()
        same.append(_gradients(there) == _gradients(here))
    return same


def test_a_reducer_and_ddp_average_there_and_the_trace_says_so(tmp_path: Path, library: str) -> None:
    for same in run_ranks(_traced, 2, tmp_path, library, str(tmp_path / "trace")):
        assert same == [True] * (PASSES + 1)
    for rank in open_run(tmp_path / "trace").ranks:
        buckets = rank.of_kind(Kind.BUCKET)
        (group,) = set(buckets["group"].tolist())
        assert rank.sidecar.groups[group].shared_memory == shared_setup.USED
        assert (buckets["flags"] & Flag.SHARED).all()
        there = buckets[(buckets["flags"] & Flag.DEVICE) != 0]
        here = buckets[(buckets["flags"] & Flag.DEVICE) == 0]
        assert len(there) == len(here) > PASSES
        in_order(
            there,
            BucketTime.READY,
            BucketTime.ENQUEUED,
            BucketTime.STARTED,
            BucketTime.DEVICE_READY,
            BucketTime.ENDED,
        )
        assert not here["times"][:, BucketTime.DEVICE_READY].any()


def _views(rank: int, _: int, library: str) -> list[bool]:
    """Gradients that stay in buckets of the device have the bits of copied ones on the CPU."""
    late = device.load(Path(library))
    group = _group()
    there, here = _model().to(device.NAME), _model()
    reducers = [
        pyddpdiag.GradientReducer(
            model.parameters(),
            bucket_cap_mb=0.002,
            process_group=group,
            shared_memory="require",
            gradient_as_bucket_view=model is there,
        )
        for model in (there, here)
    ]
    late.set_delay(LATE_US, LATE_US)
    same = []
    for step in range(PASSES):
        for model, reducer in zip((there, here), reducers, strict=True):
            model.zero_grad(set_to_none=step % 2 == 0)
            batch = _batch(rank, step).to(next(model.parameters()).device)
            model(batch).square().mean().backward()
            reducer.all_reduce()
        same.append(_gradients(there) == _gradients(here))
    return same


def test_gradients_there_can_be_views_of_their_buckets(tmp_path: Path, library: str) -> None:
    assert run_ranks(_views, 2, tmp_path, library) == [[True] * PASSES] * 2


STUCK_US = 15_000_000
TIMEOUT_S = 4


def _killed_meanwhile(rank: int, _: int, library: str, folder: str) -> tuple[str, float]:
    """Rank 1 ends while the device of rank 0 is stuck."""
    late, ranks = _ready(library, True)
    died = Path(folder, "died")
    buffer, place = torch.ones(1000, device=device.NAME), _native.SharedPlace()
    added_up.wait(ranks.add_up(buffer, 0, place))
    if rank == 1:
        time.sleep(1)
        died.write_text(repr(time.monotonic()))
        os.kill(os.getpid(), KILL)
    late.set_delay(STUCK_US, 0)
    buffer.fill_(1)
    try:
        added_up.wait(ranks.add_up(buffer, 1, place))
    except RuntimeError as error:
        return str(error), time.monotonic() - float(died.read_text())
    return "no error", 0.0


def test_a_rank_that_is_killed_while_a_device_is_stuck_is_named(tmp_path: Path, library: str) -> None:
    [(text, seconds), _] = run_ranks(
        _killed_meanwhile, 2, tmp_path, library, str(tmp_path), lost=frozenset({1})
    )
    assert "rank 1 (process " in text and "has ended in the middle of training" in text, text
    assert seconds < 2


def _stuck(rank: int, _: int, library: str, pins: bool) -> tuple[list[str], float]:
    late, ranks = _ready(library, pins)
    buffers = [torch.ones(1000, device=device.NAME), torch.ones(1000)]
    late.set_delay(STUCK_US if rank == 1 else 0, 0)
    errors = []
    begun = time.monotonic()
    buffers[0].fill_(1)
    works = [added_up.begin(ranks, buffer, number) for number, buffer in enumerate(buffers)]
    for work in works:
        try:
            added_up.wait(work)
        except RuntimeError as error:
            errors.append(str(error))
    return errors, time.monotonic() - begun


@pytest.mark.parametrize("pins", [True, False], ids=["pinned", "not pinned"])
def test_a_device_that_does_not_finish_is_an_error_in_time(tmp_path: Path, library: str, pins: bool) -> None:
    other, stuck = run_ranks(_stuck, 2, tmp_path, library, pins, group_timeout_s=TIMEOUT_S)
    for errors, seconds in (other, stuck):
        assert len(errors) == 2 and errors[0] == errors[1]
        assert "rank 1 (process " in errors[0]
        # Its own wait, and for what is still on its way to the staging buffer.
        assert TIMEOUT_S - 0.5 < seconds < STUCK_US / 1e6
    assert f"has waited {TIMEOUT_S} s for its gradients, which {device.NAME}:0 does not finish" in stuck[0][0]


def _late(rank: int, _: int, library: str, folder: str) -> list[str]:
    """Rank 1 comes when rank 0 has given up, and has copied other values to where it waited."""
    _late_device, ranks = _ready(library, pins=True)
    buffer, place = torch.ones(1000, device=device.NAME), _native.SharedPlace()
    added_up.wait(ranks.add_up(buffer, 0, place))
    given_up = Path(folder, "given up")
    while rank == 1 and not given_up.exists():
        time.sleep(0.02)
    errors = []
    for number in (1, 2):
        buffer.fill_(1 if number == 1 else 1000)
        try:
            added_up.wait(ranks.add_up(buffer, number, place))
        except RuntimeError as error:
            errors.append(str(error))
    given_up.touch()
    return errors


def test_a_rank_that_is_late_there_gets_errors(tmp_path: Path, library: str) -> None:
    waited, late = run_ranks(_late, 2, tmp_path, library, str(tmp_path), group_timeout_s=TIMEOUT_S)
    assert len(waited) == len(late) == 2
    assert f"waited {TIMEOUT_S} s for rank 1 (process " in waited[0]
    assert "rank 1 (process " in late[0] and "ran but did not take part" in late[0]
