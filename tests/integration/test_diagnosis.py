"""Faults in real training runs that leave no error behind: the report names the rank and the step."""

import math
from pathlib import Path
from typing import Literal

import pytest
import torch
from support.models import batch, branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import exit_code, load_report

STEPS = 18
SKIPS = {0: 9, 1: 4}
"""The step whose backward pass each rank skips."""

POISONED = 5


def _skip_job(rank: int, _: int, folder: str) -> None:
    """Each rank leaves out one backward pass, not the same one: the sizes of what is summed match all the same."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(STEPS)):
            loss = ddp(batch(rank, step, torch.float32)).square().mean()
            if step != SKIPS[rank]:
                loss.backward()


def _poison_job(rank: int, _: int, folder: str, shared_memory: Literal["off", "require"]) -> None:
    """Rank 1's batch makes a NaN in one step, which is not watched; the optimizer then spreads it to all ranks."""
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp, shared_memory=shared_memory)
        for step in recorder.steps(range(STEPS)):
            inputs = batch(rank, step, torch.float32)
            if (rank, step) == (1, POISONED):
                inputs[0, 0] = math.nan
            optimizer.zero_grad()
            ddp(inputs).square().mean().backward()
            optimizer.step()


def report_of(folder: Path) -> RunReport:
    report = load_report(folder)
    assert exit_code(report) == 1
    return report


def test_backward_passes_that_ranks_skip_in_turn_are_found(tmp_path: Path) -> None:
    run_ranks(_skip_job, 2, tmp_path, str(tmp_path / "run"))
    first = report_of(tmp_path / "run").verdict.findings[0]
    assert (first.kind, first.rank, first.since_step) == ("fewer_all_reduces", 1, SKIPS[1])
    assert "rank 0 did so later" in first.message


@pytest.mark.parametrize("shared_memory", ["off", "require"])
def test_a_nan_is_blamed_on_its_rank_in_a_step_that_is_not_watched(
    tmp_path: Path, shared_memory: str
) -> None:
    run_ranks(_poison_job, 2, tmp_path, str(tmp_path / "run"), shared_memory)
    first = report_of(tmp_path / "run").verdict.findings[0]
    assert (first.kind, first.rank, first.since_step) == ("non_finite_gradient", 1, POISONED)
    assert first.evidence["last_finite_step"] == POISONED - 1
    assert first.evidence["ranks_finite"] == 1
    assert first.evidence["values"] > 0
    assert first.parameter is not None
