"""Buckets in 16 bits whose sums our own kernel adds up: exact bits, the trace, and a rank that dies in the middle."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import complete, in_order
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.paths import exchange_setup
from pyddpdiag.trace.layout import BucketTime, Flag, Kind
from pyddpdiag.trace.run import open_run

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
HOOKS = {"bf16": pyddpdiag.timed_bf16_allreduce, "fp16": pyddpdiag.timed_fp16_allreduce}
STEPS = 3
FEATURES = 301  # odd: the ranks' parts of a bucket differ in size
WIDE = 2601


def _model() -> torch.nn.Module:
    torch.manual_seed(3)
    # Three buckets above 128 KiB in 16 bits, from where on more than two ranks exchange; the parts of the wide ones are
    # above 256 KiB even with four ranks, from where on they travel between hosts as messages.
    widths = [FEATURES, FEATURES, WIDE, FEATURES]
    return torch.nn.Sequential(*[torch.nn.Linear(*pair) for pair in itertools.pairwise(widths)])


def _backward(model: torch.nn.Module, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(4, FEATURES, generator=generator)
    # Of very different size on the ranks, so that the order of additions shows.
    (model(x).square().mean() * 7.0 ** (rank - 1)).backward()


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _expected(rank: int, world_size: int, compress: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum in f32 in the order of the ranks, rounded once; and Gloo's own."""
    model = _model()
    _backward(model, rank, step)
    wire = (_flat(model) * (1 / world_size)).to(DTYPES[compress])
    everyone = [torch.empty_like(wire) for _ in range(world_size)]
    dist.all_gather(everyone, wire)
    total = everyone[0].float()
    for one in everyone[1:]:
        total += one.float()
    dist.all_reduce(wire)
    return total.to(DTYPES[compress]).float(), wire.float()


def _as_if_on_its_own_host(rank: int) -> None:
    exchange_setup._host = lambda _: f"host {rank}"
    # The messages go where the group's collectives go, whatever the environment says by now.
    os.environ["GLOO_SOCKET_IFNAME"] = "there-is-none"


def _job(rank: int, world_size: int, folder: str, links: bool) -> dict[str, Any]:
    if links:
        _as_if_on_its_own_host(rank)
    found: dict[str, Any] = {}
    for compress in DTYPES:
        for way in ("native", "timed"):
            ddp = DistributedDataParallel(_model(), bucket_cap_mb=0.6)
            with pyddpdiag.Recorder(f"{folder}/{way}-{compress}", capacity_mb=1) as recorder:
                if way == "native":
                    recorder.attach(ddp, compress=compress)  # type: ignore[arg-type]
                else:
                    ddp.register_comm_hook(recorder, HOOKS[compress])
                for step in range(STEPS):
                    ddp.zero_grad()
                    _backward(ddp, rank, step)
                    ours = _flat(ddp.module)
                    exact, gloos = _expected(rank, world_size, compress, step)
                    found[f"{way} {compress} {step}"] = (
                        torch.equal(ours, exact),
                        torch.equal(ours, gloos),
                        ours.numpy().tobytes(),
                    )
    return found


@pytest.mark.parametrize("links", [False, True], ids=["one host", "hosts"])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_the_sum_is_rounded_once_on_every_rank(tmp_path: Path, world_size: int, links: bool) -> None:
    answers = run_ranks(_job, world_size, tmp_path, str(tmp_path), links)
    for case, (exact, as_gloo, bits) in answers[0].items():
        assert exact, case
        # Two ranks have but one addition, which Gloo rounds as well: one may change between the two ways.
        assert as_gloo or world_size > 2, case
        assert all(answer[case][2] == bits for answer in answers), case
    for way in ("native", "timed"):
        for rank in open_run(tmp_path / f"{way}-bf16").ranks:
            buckets = complete(rank, Kind.BUCKET)
            assert (buckets["flags"] & Flag.COMPRESSED).all()
            in_order(buckets, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
            # The exchange is the bucket's own: neither its all-to-all nor its messages stand beside it.
            others = set(complete(rank, Kind.COLLECTIVE)["name"].astype(str).tolist())
            assert not others & {"gloo:all_to_all", "gloo:send", "gloo:recv"}, others


def _not_finite_job(rank: int, world_size: int, folder: str, compress: str) -> bytes:
    ddp = DistributedDataParallel(_model(), bucket_cap_mb=0.6)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, compress=compress)  # type: ignore[arg-type]
        # NaN of another payload on each rank, and infinities of both signs.
        bits = np.array([0x7FC00001 + (rank << 16), 0x7F800000, 0xFF800000], dtype=np.uint32)
        bad = torch.from_numpy(bits.view(np.float32).copy())
        x = torch.zeros(1, FEATURES)
        x[0, :3] = bad
        x[0, 3 + rank] = float("inf") * (-1) ** rank
        ddp(x).sum().backward()
    return _flat(ddp.module).numpy().tobytes()


@pytest.mark.parametrize("compress", DTYPES)
def test_not_finite_gradients_are_the_same_bits_too(tmp_path: Path, compress: str) -> None:
    answers = run_ranks(_not_finite_job, 2, tmp_path, str(tmp_path), compress)
    assert np.isnan(np.frombuffer(answers[0], np.float32)).any()
    assert answers[0] == answers[1]


def _dying_job(rank: int, world_size: int, folder: str) -> str:
    _as_if_on_its_own_host(rank)
    ddp = DistributedDataParallel(_model(), bucket_cap_mb=0.6)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, compress="bf16")
        # DDP rebuilds its buckets in the second forward pass, with collectives of its own.
        for step in range(2):
            _backward(ddp, rank, step)
        dist.barrier()
        if rank == world_size - 1:
            os._exit(1)
        try:
            _backward(ddp, rank, 2)
        except RuntimeError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_lost_rank_is_an_error_that_names_the_bucket(tmp_path: Path, world_size: int) -> None:
    lost = world_size - 1
    answers = run_ranks(
        _dying_job, world_size, tmp_path, str(tmp_path), group_timeout_s=10, lost=frozenset({lost})
    )
    for rank in range(lost):
        assert f"this error reached rank {rank} while reducing bucket " in answers[rank]
        assert "by the 16-bit path." in answers[rank]
        assert ", of step 2 in group " in answers[rank]


def _sizes_job(rank: int, world_size: int, folder: str) -> bool:
    """Fewer values than ranks, and a parameter of no values."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1, bias=False)
    ddp = DistributedDataParallel(model)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, compress="bf16")
        ddp(torch.full((1, 2), float(rank + 1))).sum().backward()
    assert model.weight.grad is not None
    return bool(torch.allclose(model.weight.grad, torch.tensor((world_size + 1) / 2), rtol=2**-6))


def test_fewer_values_than_ranks(tmp_path: Path) -> None:
    assert all(run_ranks(_sizes_job, 3, tmp_path, str(tmp_path)))
