"""GradientReducer on real ranks: averages equal to those made by hand, and clear errors."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.models import Branches, batch, branches
from support.ranks import run_ranks

import pyddpdiag
from pyddpdiag.errors import NoProcessGroupError, ReductionError, UsageError

SMALL_MB = 0.002


def _by_hand(model: torch.nn.Module, scale: float) -> list[torch.Tensor]:
    """Each gradient by an all-reduce of its own."""
    result = []
    for parameter in model.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        gradient.mul_(scale)
        dist.all_reduce(gradient)
        result.append(gradient)
    return result


def _loss(model: torch.nn.Module, rank: int, step: int, dtype: torch.dtype) -> torch.Tensor:
    return model(batch(rank, step, dtype)).square().mean()


def _gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def _twin(model: Branches, dtype: torch.dtype) -> Branches:
    other = branches(dtype)
    other.load_state_dict(model.state_dict())
    other.alternate, other.calls = model.alternate, model.calls
    return other


def _averages(rank: int, world_size: int) -> dict[str, int]:
    """Compares with averages by hand; how many buckets each case had."""
    counted = {}
    for name, dtype, options in (
        ("one bucket", torch.float32, {}),
        ("many buckets", torch.float32, {"bucket_cap_mb": SMALL_MB}),
        ("f64", torch.float64, {"bucket_cap_mb": SMALL_MB}),
        ("bf16", torch.bfloat16, {"bucket_cap_mb": SMALL_MB}),
        ("f16", torch.float16, {"bucket_cap_mb": SMALL_MB}),
    ):
        model = branches(dtype)
        # In which step a branch is left out differs by rank: unused here, used there.
        model.alternate, model.calls = True, rank
        with pyddpdiag.GradientReducer(model.named_parameters(), **options) as reducer:
            for step in range(4):
                twin = _twin(model, dtype)
                _loss(twin, rank, step, dtype).backward()
                model.zero_grad()
                _loss(model, rank, step, dtype).backward()
                reducer.all_reduce()
                wanted = _by_hand(twin, 1 / world_size)
                for got, right in zip(_gradients(model), wanted, strict=True):
                    if world_size == 2:
                        assert torch.equal(got, right), name
                    # Of three numbers Gloo adds first those that the place in the buffer says.
                    slack = 4 * torch.finfo(dtype).eps * max(float(r.abs().max()) for r in wanted)
                    torch.testing.assert_close(got, right, rtol=0, atol=slack)
                assert any(right.abs().max() > 0 for right in wanted)
            counted[name] = len(reducer._buckets)
    return counted


def test_averages_of_three_ranks(tmp_path: Path) -> None:
    run_ranks(_averages, 3, tmp_path)


def _all_of_two(rank: int, world_size: int) -> tuple[dict[str, int], list[int], dict[str, str]]:
    """One start of two ranks for all that needs no more: starting them takes longer than the tests."""
    counted = _averages(rank, world_size)
    _other_ways(rank, world_size)
    return counted, _begun_early(rank), _wrong_uses(rank)


@pytest.fixture(scope="module")
def two_ranks(
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[dict[str, int], list[int], dict[str, str]]]:
    return run_ranks(_all_of_two, 2, tmp_path_factory.mktemp("two"))


def test_averages_accumulation_compression_and_mixed_types_of_two_ranks(two_ranks) -> None:
    for counted, _, _ in two_ranks:
        assert counted["one bucket"] == 1
        assert counted["many buckets"] >= 4


def _other_ways(rank: int, world_size: int) -> None:
    # Accumulation: three passes under no_sync, the fourth reduces the sum.
    model = branches(torch.float32)
    reducer = pyddpdiag.GradientReducer(model.parameters(), bucket_cap_mb=SMALL_MB)
    twin = _twin(model, torch.float32)
    with reducer.no_sync():
        for step in range(3):
            _loss(model, rank, step, torch.float32).backward()
    _loss(model, rank, 3, torch.float32).backward()
    for step in range(4):
        _loss(twin, rank, step, torch.float32).backward()
    reducer.all_reduce()
    for got, right in zip(_gradients(model), _by_hand(twin, 1 / world_size), strict=True):
        assert torch.equal(got, right)
    reducer.close()

    # Buckets of bf16 for gradients of f32: cast, summed by Gloo, cast back.
    model = branches(torch.float32)
    twin = _twin(model, torch.float32)
    reducer = pyddpdiag.GradientReducer(model.parameters(), dtype=torch.bfloat16)
    _loss(model, rank, 0, torch.float32).backward()
    _loss(twin, rank, 0, torch.float32).backward()
    reducer.all_reduce()
    for got, gradient in zip(_gradients(model), _gradients(twin), strict=True):
        short = gradient.mul(1 / world_size).bfloat16()
        dist.all_reduce(short)
        assert got.dtype is torch.float32
        assert torch.equal(got, short.float())
    reducer.close()

    # Mixed types go into buckets of their own.
    mixed = torch.nn.ParameterList([torch.ones(5), torch.ones(5, dtype=torch.float64), torch.ones(5)])
    reducer = pyddpdiag.GradientReducer(mixed.parameters())
    sum((p.double() * (rank + 1)).sum() for p in mixed).backward()
    reducer.all_reduce()
    assert len(reducer._buckets) == 2
    for parameter in mixed:
        assert parameter.grad is not None
        assert parameter.grad.dtype is parameter.dtype
        assert torch.equal(parameter.grad, torch.full_like(parameter, (world_size + 1) / 2))
    reducer.close()


def _begun_early(rank: int) -> list[int]:
    """How many buckets were on their way when the backward pass reached the first layer."""
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(6)])
    reducer = pyddpdiag.GradientReducer(model.parameters(), bucket_cap_mb=8 * 8 * 4 / 2**20)
    begun = []
    first = next(model.parameters())
    first.register_hook(lambda _: begun.append(len(reducer._in_flight)))
    model(torch.ones(2, 8) * (rank + 1)).sum().backward()
    reducer.all_reduce()
    return begun


def test_buckets_leave_while_the_backward_pass_runs(two_ranks) -> None:
    assert [begun for _, begun, _ in two_ranks] == [[5], [5]]


def _message(error: type[Exception], call: Any) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def _wrong_uses(rank: int) -> dict[str, str]:
    messages = {}
    model = branches(torch.float32)
    reducer = pyddpdiag.GradientReducer(model.named_parameters())
    messages["no backward"] = _message(UsageError, reducer.all_reduce)
    _loss(model, rank, 0, torch.float32).backward()
    reducer.all_reduce()
    messages["twice"] = _message(UsageError, reducer.all_reduce)

    _loss(model, rank, 0, torch.float32).backward()
    messages["second backward"] = _message(
        UsageError, lambda: _loss(model, rank, 1, torch.float32).backward()
    )
    reducer.all_reduce()

    _loss(model, rank, 0, torch.float32).backward()
    reducer.all_reduce()
    model.stem.weight.requires_grad_(False)
    messages["frozen"] = _message(
        UsageError, lambda: (_loss(model, rank, 0, torch.float32).backward(), reducer.all_reduce())
    )
    reducer.close()
    messages["closed"] = _message(UsageError, reducer.all_reduce)

    embedding = torch.nn.Embedding(5, 3, sparse=True)
    sparse = pyddpdiag.GradientReducer(embedding.named_parameters())
    messages["sparse"] = _message(UsageError, lambda: embedding(torch.tensor([1])).sum().backward())
    sparse.close()

    layers = [torch.nn.Linear(4, 4) for _ in range(2 + rank)]
    other = torch.nn.Sequential(*layers)
    messages["other model"] = _message(ReductionError, lambda: pyddpdiag.GradientReducer(other.parameters()))
    return messages


def test_wrong_uses_are_reported(two_ranks) -> None:
    for rank, (_, _, messages) in enumerate(two_ranks):
        assert "no gradient came since the last call" in messages["no backward"]
        assert "called twice" in messages["twice"]
        assert "second gradient before all_reduce()" in messages["second backward"]
        assert "no_sync" in messages["second backward"]
        assert "'stem.weight' was changed" in messages["frozen"]
        assert "closed" in messages["closed"]
        assert "the gradient of 'weight' is sparse" in messages["sparse"]
        assert "[1] of the group differ" in messages["other model"]
        assert "4, 6" in messages["other model"]
        for message in messages.values():
            assert f"rank {rank}:" in message
            assert "hint:" in message


def _late(rank: int, _: int) -> tuple[str, float]:
    model = branches(torch.float32)
    reducer = pyddpdiag.GradientReducer(model.named_parameters())
    _loss(model, rank, 0, torch.float32).backward()
    reducer.all_reduce()
    if rank == 1:
        time.sleep(5)  # alive, but not there in the second round
        return "", 0.0
    _loss(model, rank, 0, torch.float32).backward()
    begin = time.monotonic()
    message = _message(ReductionError, lambda: reducer.all_reduce(timeout_s=2))
    return message, time.monotonic() - begin


def test_a_rank_that_is_missing_is_reported_in_time(tmp_path: Path) -> None:
    (message, seconds), _ = run_ranks(_late, 2, tmp_path, group_timeout_s=30)
    assert seconds < 20
    assert "rank 0: bucket 0" in message
    assert "was not reduced over the 2 ranks" in message


def test_arguments() -> None:
    with pytest.raises(NoProcessGroupError, match="not initialised"):
        pyddpdiag.GradientReducer([torch.ones(1, requires_grad=True)])
    from pyddpdiag.gradients.buckets import in_buckets, named

    with pytest.raises(UsageError, match="given twice"):
        named([p := torch.ones(2, requires_grad=True), p])
    with pytest.raises(UsageError, match="no parameter that needs a gradient"):
        named([torch.ones(2)])
    with pytest.raises(UsageError, match="dense leaf tensor"):
        named([torch.ones(2, dtype=torch.complex64, requires_grad=True)])
    with pytest.raises(UsageError, match="takes parameters, not int"):
        named([3])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="bucket_cap_mb"):
        in_buckets([torch.ones(2)], 0, None)
    with pytest.raises(UsageError, match="dtype must be"):
        in_buckets([torch.ones(2)], 1, torch.int8)


def test_buckets_go_from_the_last_parameter_to_the_first() -> None:
    from pyddpdiag.gradients.buckets import in_buckets

    parameters = [torch.ones(n) for n in (10, 1000, 10, 10)]
    buckets = in_buckets(parameters, 80 / 2**20, None)
    assert [b.parameters for b in buckets] == [[3, 2], [1], [0]]
    assert [b.buffer.numel() for b in buckets] == [20, 1000, 10]
