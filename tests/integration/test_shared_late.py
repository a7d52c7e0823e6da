"""A rank that comes after another one has given up: what all ranks brought, or an error, and never another number."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from support.own_hosts import only_own_host
from support.ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag

TIMEOUT_S = 5
OTHER = 1000.0  # what a rank that has given up multiplies its input or its gradients by
GOOD = 3
# The gradient, or the error, of each pass.
Passes = list[float | str]


def _gradient_or_error(one_pass: Callable[[], None], model: nn.Module) -> float | str:
    try:
        one_pass()
    except RuntimeError as error:  # a ReductionError is one
        return str(error)
    [values] = [p.grad.unique().tolist() for p in model.parameters() if p.grad is not None]
    assert len(values) == 1, values
    return float(values[0])


def _await(path: Path) -> None:
    limit = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit, f"{path.name} did not come"
        time.sleep(0.02)


def _model(rank: int, outputs: int = 300) -> tuple[nn.Module, torch.Tensor]:
    """With gradients of 1 in rank 0, 2 in rank 1 and so on."""
    return nn.Linear(200, outputs, bias=False), torch.full((1, 200), 1.0 + rank)


def _ddp(rank: int, _: int, folder: str) -> Passes:
    """Rank 1 comes late to the pass after three good ones, and rank 0 goes on with another input."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=TIMEOUT_S))
    model, x = _model(rank)
    ddp = DistributedDataParallel(model, process_group=group)
    given_up = Path(folder, "given up")
    with pyddpdiag.Recorder(f"{folder}/trace", capacity_mb=1) as recorder:
        recorder.attach(ddp, shared_memory="require")
        found: Passes = []
        for step in range(GOOD + 2):
            if rank == 1 and step == GOOD:
                _await(given_up)
            ddp.zero_grad()
            found.append(_gradient_or_error(lambda: ddp(x).sum().backward(), model))
            if rank == 0 and step == GOOD:
                x.mul_(OTHER)
        given_up.touch()
        return found


def test_a_late_rank_of_ddp_gets_errors(tmp_path: Path) -> None:
    answers = run_ranks(_ddp, 2, tmp_path, str(tmp_path))
    for answer in answers:
        assert answer[:GOOD] == [1.5] * GOOD
        assert all(isinstance(found, str) for found in answer[GOOD:]), answer
    # The late rank is to blame, and not the one that has waited for it; and every later bucket fails for that.
    for waited, late in zip(answers[0][GOOD:], answers[1][GOOD:], strict=True):
        assert f"waited {TIMEOUT_S} s for rank 1 (process " in waited, waited
        assert "rank 1 (process " in late and "ran but did not take part: rank 0 (process " in late, late
        assert f"has waited {TIMEOUT_S} s and given up" in late, late


def _reducers(rank: int, _: int, folder: str) -> dict[str, Passes]:
    """Of ranks 1 and 2, each comes late once to the second pass, with views and with copies."""
    group = dist.new_group([1, 2])
    found: dict[str, Passes] = {}
    for late in (1, 2):
        for views in (False, True):
            way = f"{'views' if views else 'copies'}, rank {late} is late"
            if rank != 0:
                found[way] = _reducer(rank, late, views, Path(folder, way), group)
    return found


def _reducer(rank: int, late: int, views: bool, given_up: Path, group: dist.ProcessGroup) -> Passes:
    model, x = _model(rank)
    with pyddpdiag.GradientReducer(
        model.named_parameters(), process_group=group, shared_memory="require", gradient_as_bucket_view=views
    ) as reducer:
        found: Passes = []
        for step in range(3):
            if rank == late and step == 1:
                _await(given_up)
            model.zero_grad()

            def one_pass(timeout_s: float | None = 0.2 if step == 1 and rank != late else None) -> None:
                model(x).sum().backward()
                reducer.all_reduce(timeout_s)

            found.append(_gradient_or_error(one_pass, model))
            if rank != late and step == 1:
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.grad *= OTHER
                given_up.touch()
        return found


def test_a_late_rank_of_a_reducer_gets_errors(tmp_path: Path) -> None:
    _, *answers = run_ranks(_reducers, 3, tmp_path, str(tmp_path))
    for rank, answer in enumerate(answers, 1):
        for way, (first, *others) in answer.items():
            assert first == 2.5, way
            assert all(isinstance(found, str) for found in others), (rank, way, others)
            assert "an earlier pass of this GradientReducer has failed" in str(others[1])
    assert "was made to give up while it waited" in str(answers[1]["views, rank 2 is late"][1])


def _closed(rank: int, _: int, folder: str) -> float | str:
    """Rank 0 closes its reducer between the backward pass and all_reduce(), and uses the gradients otherwise."""
    model, x = _model(rank)
    reducer = pyddpdiag.GradientReducer(
        model.named_parameters(), shared_memory="require", gradient_as_bucket_view=True
    )
    closed = Path(folder, "closed")
    if rank == 1:
        _await(closed)

    def one_pass() -> None:
        model(x).sum().backward()
        if rank == 1:
            reducer.all_reduce()

    found = _gradient_or_error(one_pass, model)
    if rank == 0:
        reducer.close()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad *= OTHER
        closed.touch()
    return found


def test_a_reducer_that_is_closed_in_a_pass_is_an_error_for_the_others(tmp_path: Path) -> None:
    assert "did not take part" in str(run_ranks(_closed, 2, tmp_path, str(tmp_path))[1])


# Rank R is on host HOSTS[R].
HOSTS = [0, 1, 1, 0]


def _hosts(rank: int, _: int, folder: str) -> Passes:
    """Rank 1 is late. Rank 3 gives up meanwhile, whose sum is on its way to rank 2: the bucket is one part."""
    only_own_host(rank, HOSTS)
    model, x = _model(rank, outputs=10)
    reducer = pyddpdiag.GradientReducer(
        model.named_parameters(), shared_memory="require", gradient_as_bucket_view=True
    )
    given_up = [Path(folder, f"given up {other}") for other in (0, 3)]
    found: Passes = []
    for step in range(3):
        if rank == 1 and step == 1:
            for path in given_up:
                _await(path)
        model.zero_grad()

        def one_pass(timeout_s: float | None = 1.0 if step == 1 and rank == 3 else None) -> None:
            model(x).sum().backward()
            reducer.all_reduce(timeout_s)

        found.append(_gradient_or_error(one_pass, model))
        if rank in (0, 3) and step == 1:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad *= OTHER
            Path(folder, f"given up {rank}").touch()
    return found


def test_a_late_host_gets_what_all_brought_or_an_error(tmp_path: Path) -> None:
    answers = run_ranks(_hosts, 4, tmp_path, str(tmp_path))
    for rank, (first, second, third) in enumerate(answers):
        assert first == 2.5
        assert isinstance(second, str) or (second == 2.5 and rank in (1, 2)), (rank, second)
        assert isinstance(third, str), (rank, third)
