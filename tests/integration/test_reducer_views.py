"""GradientReducer whose gradients stay in the buckets: the same bits as without, however they are zeroed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import complete
from support.models import batch, branches, gradient_bytes
from support.ranks import run_ranks
from torch import nn

import pyddpdiag
from pyddpdiag.errors import ReductionError, UsageError
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import read_trace

STEPS = 4
SMALL_MB = 0.002
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# How gradients are reset before a pass: to None, or in place; "some": one parameter's to None, the others in place.
RESETS = ("none", "in place", "some", "not at all")


def _reset(model: nn.Module, how: str) -> None:
    if how == "none":
        model.zero_grad()
    elif how != "not at all":
        model.zero_grad(set_to_none=False)
        if how == "some":
            next(model.parameters()).grad = None


def _train(rank: int, dtype: torch.dtype, reset: str, **options: Any) -> tuple[list[list[bytes]], int]:
    """Each step's gradients as bytes, and how many of the last step lie in a bucket."""
    model = branches(dtype)
    # In which step a branch is left out differs by rank: unused here, used there.
    model.alternate, model.calls = True, rank
    bits = []
    with pyddpdiag.GradientReducer(model.named_parameters(), bucket_cap_mb=SMALL_MB, **options) as reducer:
        for step in range(STEPS):
            _reset(model, reset)
            with reducer.no_sync():
                model(batch(rank, step, dtype)).square().mean().backward()
            model(batch(rank, step + 100, dtype)).square().mean().backward()
            reducer.all_reduce()
            bits.append(gradient_bytes(model))
        buckets = {bucket.buffer.untyped_storage().data_ptr() for bucket in reducer._buckets}
    return bits, sum(p.grad.untyped_storage().data_ptr() in buckets for p in model.parameters())


def _every_way(rank: int, _: int) -> None:
    parameters = len(list(branches(torch.float32).parameters()))
    for way in ("off", "require"):
        for name, dtype in DTYPES.items():
            for reset in RESETS:
                bits = {}
                for views in (False, True):
                    bits[views], inside = _train(
                        rank, dtype, reset, shared_memory=way, gradient_as_bucket_view=views
                    )
                    assert inside == (parameters if views else 0)
                assert any(any(gradient) for gradient in bits[True][-1])
                assert bits[True] == bits[False], (way, name, reset)


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_same_bits_as_gradients_of_their_own(tmp_path: Path, ranks: int) -> None:
    run_ranks(_every_way, ranks, tmp_path)


def _channels_last(rank: int, _: int) -> None:
    """Gradients that are not contiguous keep memory and layout of their own."""
    bits = []
    for views in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(16, 3))
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with pyddpdiag.GradientReducer(
            model.parameters(), shared_memory="require", gradient_as_bucket_view=views
        ) as reducer:
            for step in range(3):
                model.zero_grad(set_to_none=step == 1)
                generator = torch.Generator().manual_seed(10 * step + rank)
                model(torch.randn(2, 3, 4, 4, generator=generator)).square().mean().backward()
                reducer.all_reduce()
                bits.append(gradient_bytes(model))
            strides = [p.grad.stride() == p.stride() for p in model.parameters()]
            assert all(strides)
            assert not model[0].weight.grad.is_contiguous()
    assert bits[:3] == bits[3:]
    assert any(bits[0])


def test_other_memory_formats(tmp_path: Path) -> None:
    run_ranks(_channels_last, 2, tmp_path)


def _recorded(rank: int, _: int, folder: str) -> None:
    """The same statistics of what this rank put in, gradient by gradient."""
    found = []
    for views in (False, True):
        with pyddpdiag.Recorder(
            f"{folder}/{views}", capacity_mb=1, statistics_interval=1, parameter_statistics=True
        ) as recorder:
            options = {"shared_memory": "require", "gradient_as_bucket_view": views}
            bits, _ = _train(rank, torch.float32, "in place", recorder=recorder, **options)
        notes = complete(read_trace(recorder.path), Kind.GRADIENT)
        notes = notes[np.lexsort((notes["flags"], notes["index"], notes["step"]))]
        found.append((bits, notes["times"].tolist()))
    assert len(found[0][1]) >= STEPS
    assert found[0] == found[1]


def test_recorded(tmp_path: Path) -> None:
    run_ranks(_recorded, 2, tmp_path, str(tmp_path))


def _adds_twice(rank: int, _: int, way: str, no_sync: bool) -> tuple[str, str]:
    """A second backward pass adds to a bucket that other ranks sum already: nobody may use what comes of it."""
    parameter = nn.Parameter(torch.ones(1000))
    reducer = pyddpdiag.GradientReducer([parameter], shared_memory=way, gradient_as_bucket_view=True)
    parameter.sum().backward()
    if no_sync:
        with reducer.no_sync():
            parameter.sum().backward()
    else:
        with pytest.raises(UsageError, match="got a second gradient before all_reduce"):
            parameter.sum().backward()
    with pytest.raises(ReductionError) as spoiled:
        reducer.all_reduce()
    with pytest.raises(ReductionError) as again:
        parameter.sum().backward()
    return str(spoiled.value), str(again.value)


@pytest.mark.parametrize("no_sync", [False, True])
@pytest.mark.parametrize("way", ["off", "require"])
def test_a_second_gradient_in_a_bucket_on_its_way_spoils_the_reducer(
    tmp_path: Path, way: str, no_sync: bool
) -> None:
    for texts in run_ranks(_adds_twice, 2, tmp_path, way, no_sync):
        for text in texts:
            assert "a second gradient of 'parameter 0' went into a bucket on its way" in text
            assert "make a new GradientReducer on all ranks" in text


def _outlives(rank: int, _: int) -> list[float]:
    parameter = nn.Parameter(torch.ones(300_000))
    group = dist.new_group()
    reducer = pyddpdiag.GradientReducer(
        [parameter], process_group=group, shared_memory="require", gradient_as_bucket_view=True
    )
    (parameter.sum() * (rank + 1)).backward()
    reducer.all_reduce()
    reducer.close()
    del reducer
    dist.destroy_process_group(group)
    dist.barrier()
    if rank != 0:
        return []
    assert parameter.grad is not None
    before = parameter.grad.unique().tolist()
    parameter.grad.mul_(2)
    torch.optim.SGD([parameter], 0.5).step()
    return [*before, *parameter.detach().unique().tolist()]


def test_gradients_outlive_reducer_and_group(tmp_path: Path) -> None:
    assert run_ranks(_outlives, 2, tmp_path)[0] == [1.5, -0.5]


def _refused(rank: int, _: int) -> tuple[str, str]:
    model = branches(torch.float32)
    with pytest.raises(UsageError) as other_type:
        pyddpdiag.GradientReducer(
            model.named_parameters(), dtype=torch.bfloat16, gradient_as_bucket_view=True
        )
    reducer = pyddpdiag.GradientReducer(
        model.named_parameters(), shared_memory="require", gradient_as_bucket_view=True
    )
    model(batch(rank, 0, torch.float32)).sum().backward()
    reducer.all_reduce()
    if rank == 1:
        reducer.close()
        del reducer
        dist.barrier()
        return str(other_type.value), ""
    dist.barrier()
    model(batch(rank, 0, torch.float32)).sum().backward()
    with pytest.raises(ReductionError) as gone:
        reducer.all_reduce()
    return str(other_type.value), str(gone.value)


def test_errors_are_reported(tmp_path: Path) -> None:
    answers = run_ranks(_refused, 2, tmp_path)
    for other_type, _ in answers:
        assert "cannot be a view of a bucket of torch.bfloat16" in other_type
        assert "'head.bias'" in other_type
        assert "hint:" in other_type
    assert "rank 1 (process " in answers[0][1]
