"""The sentinel on real ranks that put NaN in, skip an all-reduce, or hold other memory than they should."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import WAYS, complete, register
from support.models import batch, branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import GradientError
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import read_trace


def _train(rank: int, folder: str, way: str, mode: str, fault: str, steps: int = 4) -> list[str]:
    """The sentinel's words by step; "" for a step in which it was silent."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    trained = []
    with pyddpdiag.Recorder(
        f"{folder}/{way}-{mode}-{fault}".replace(" ", "-"),
        capacity_mb=1,
        sentinel=mode,
        sentinel_interval=2,  # type: ignore[arg-type]
    ) as recorder:
        register(recorder, ddp, way)
        for step in recorder.steps(range(steps)):
            ddp.zero_grad()
            if step == 2 and rank == 1 and fault == "weights":
                with torch.no_grad():
                    next(ddp.parameters()).add_(1)
            loss = ddp(batch(rank, step, torch.float32)).square().mean()
            if step == 2 and rank == 1 and fault == "nan":
                loss = loss * float("nan")
            if step == 2 and rank == 1 and fault == "pause":
                recorder.pause()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    loss.backward()
                    trained.append("".join(str(w.message) for w in caught if "sentinel" in str(w.message)))
                except GradientError as error:
                    trained.append(str(error))
    return trained


def _job(rank: int, _: int, folder: str, way: str) -> dict[str, list[str]]:
    return {
        f"{mode} {fault}": _train(rank, folder, way, mode, fault)
        for mode, fault in (
            ("warn", "none"),
            ("warn", "nan"),
            ("raise", "nan"),
            ("raise", "pause"),
            ("raise", "weights"),
        )
    }


@pytest.fixture(scope="module", params=WAYS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("sentinel")
    return folder, run_ranks(_job, 2, folder, str(folder), request.param)


def test_healthy_training_is_left_alone(trained: tuple[Path, Any]) -> None:
    for rank in trained[1]:
        assert rank["warn none"] == [""] * 4


def test_weights_that_one_rank_changed_are_reported_on_every_rank(trained: tuple[Path, Any]) -> None:
    for rank in trained[1]:
        silent, _, words, _ = rank["raise weights"]
        assert silent == "" and "the ranks hold different weights" in words and "of step 2" in words


@pytest.mark.parametrize("mode", ["warn", "raise"])
def test_nan_is_reported_on_every_rank_with_rank_parameter_and_step(
    trained: tuple[Path, Any], mode: str
) -> None:
    for number, rank in enumerate(trained[1]):
        silent, _, words, _ = rank[f"{mode} nan"]
        assert silent == ""
        assert words.startswith(f"rank {number}: the sentinel found wrong gradients")
        assert "rank 1 put" in words and "of step 2" in words and "the first in '" in words
        assert "rank 0 put" not in words
        assert ("optimizer's step" in words) == (mode == "raise")


def test_a_paused_rank_neither_hangs_the_others_nor_is_blamed(trained: tuple[Path, Any]) -> None:
    for rank in trained[1]:
        assert rank["raise pause"] == [""] * 4


def test_statistics_are_in_the_trace(trained: tuple[Path, Any]) -> None:
    folder, _ = trained
    run = next(path for path in folder.iterdir() if path.name.endswith("warn-nan"))
    records = complete(read_trace(run / "rank_1.ddptrace"), Kind.GRADIENT)
    values = records["times"][:, 0].view(np.float64)
    healthy = records["step"] == 0
    assert (values[healthy] > 0).all() and np.isnan(values[records["step"] == 2]).all()
    assert (records["times"][records["step"] == 2, 2] > 0).all()


def _swapped(rank: int, _: int, folder: str) -> str:
    """Both ranks call one all-reduce of their own, rank 1 before the buckets and rank 0 between them."""
    size = 64
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(2)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=size * 4 / 2**20)
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, sentinel="raise", sentinel_interval=1)
    recorder.attach(ddp)
    x = torch.full((2, 8), 1.0 + rank)
    # The second forward pass makes the final buckets, with collectives of its own.
    for _pass in range(3):
        ddp(x).sum().backward()
    extra = []

    def call(_gradient: object = None) -> None:
        extra.append(dist.all_reduce(torch.zeros(size), async_op=True))

    if rank == 1:
        call()
    else:
        model[0].weight.register_hook(call)
    try:
        ddp(x).sum().backward()
        words = "nothing"
    except GradientError as error:
        words = str(error)
    extra[0].wait()
    recorder.close()
    return words


def test_swapped_all_reduces_are_named_instead_of_wrong_sums(tmp_path: Path) -> None:
    for words in run_ranks(_swapped, 2, tmp_path, str(tmp_path / "trace"), group_timeout_s=20):
        assert "the ranks hold different sums" in words
        assert "on rank 0" in words and "on rank 1" in words and "in another order" in words


def _per_parameter(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32))
    with pyddpdiag.Recorder(folder, capacity_mb=1, parameter_statistics=True) as recorder:
        recorder.attach(ddp)
        ddp(batch(rank, 0, torch.float32)).square().mean().backward()


def test_statistics_of_parameters_add_up_to_those_of_the_bucket(tmp_path: Path) -> None:
    run_ranks(_per_parameter, 2, tmp_path, str(tmp_path / "trace"))
    records = complete(read_trace(tmp_path / "trace" / "rank_0.ddptrace"), Kind.GRADIENT)
    of_parameter = (records["flags"] & 256) != 0
    assert of_parameter.any() and (~of_parameter).any()
    squares = records["times"][:, 0].view(np.float64)
    assert squares[of_parameter].sum() == pytest.approx(squares[~of_parameter].sum(), rel=1e-12)
    assert records["times"][of_parameter, 6].sum() == records["times"][~of_parameter, 6].sum()
