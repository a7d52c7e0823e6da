"""What a trial does where it cannot go on, or where weights come apart: it never holds up or ends a healthy run."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.ranks import run_ranks
from support.scenario import Scenario
from support.scenario_training import hurry
from support.trial_job import noted, short_blocks, wide
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.cures import trial_agreement
from pyddpdiag.cures.ddp_reducer import Reducers
from pyddpdiag.errors import ReductionError
from pyddpdiag.model.tried import TODAY, Tried


def _attached(folder: str, cures: list[str]) -> tuple[DistributedDataParallel, pyddpdiag.Recorder]:
    short_blocks()
    hurry(Scenario(1, 2))
    ddp = DistributedDataParallel(wide())
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
    recorder.attach(ddp, trial=pyddpdiag.Trial(cures, minutes=60))
    return ddp, recorder


def _pass(ddp: DistributedDataParallel) -> None:
    ddp(torch.ones(2, 512)).square().mean().backward()
    ddp.zero_grad()


def _alone(rank: int, _: int, folder: str) -> Tried | None:
    trial_agreement.WAIT_S = 0.5  # type: ignore[misc]
    # Not of buckets: in the second pass of any reducer, DDP itself waits for the other ranks.
    ddp, recorder = _attached(folder, ["compress", "shared-memory"])
    with recorder:
        if rank == 0:
            ddp(torch.ones(2, 512))  # such as the drawing of a graph, while the others wait
        dist.barrier()
        for _number in range(12):
            _pass(ddp)
        if rank == 0:
            ddp(torch.ones(2, 512))
        dist.barrier()
        for _number in range(12):
            _pass(ddp)
    return noted(recorder.path)


def test_a_forward_pass_of_one_rank_waits_for_nobody_for_good(tmp_path: Path) -> None:
    began = time.monotonic()
    one, other = run_ranks(_alone, 2, tmp_path, str(tmp_path / "run"), group_timeout_s=300, timeout_s=200)
    assert time.monotonic() - began < 250  # and not the group's time limit
    assert one == other
    assert all(cure.blocks for cure in one.cures), "it goes on once all are there"


def _without(rank: int, _: int, folder: str) -> tuple[str, str]:
    trial_agreement.WAIT_S = 0.2  # type: ignore[misc]
    ddp, recorder = _attached(folder, ["buckets"])
    if rank == 1:
        recorder.detach(ddp)
    with recorder:
        for _number in range(20):
            _pass(ddp)
    trial = noted(recorder.path)
    assert trial is not None
    return trial.state, trial.why


def test_ranks_that_never_meet_go_on_as_they_are(tmp_path: Path) -> None:
    (state, why), _ = run_ranks(_without, 2, tmp_path, str(tmp_path / "run"))
    assert state == "failed" and "rank 1 did not come" in why


def _make_one_less() -> None:
    """Reducers are made without the first parameter from now on."""
    made = Reducers._made

    def one_less(self: Reducers, ddp: DistributedDataParallel, layout: Any) -> Any:
        every = self._parameters
        self._parameters = every[1:]
        try:
            return made(self, ddp, layout)
        finally:
            self._parameters = every

    Reducers._made = one_less  # type: ignore[method-assign]


def _lacking(rank: int, _: int, folder: str) -> Any:
    if rank == 1:
        _make_one_less()
    ddp, recorder = _attached(folder, ["buckets"])
    with recorder:
        for _number in range(12):
            _pass(ddp)
    return noted(recorder.path)


def test_a_reducer_of_other_parameters_is_never_put_on(tmp_path: Path) -> None:
    one, other = run_ranks(_lacking, 2, tmp_path, str(tmp_path / "run"))
    assert one == other and one.now == TODAY
    assert all(cure.left == "rank 1: torch made a reducer of other parameters" for cure in one.cures)


def _unchecked(rank: int, _: int, folder: str) -> str:
    _make_one_less()
    Reducers._checked = lambda _, new: new  # type: ignore[method-assign]
    ddp, recorder = _attached(folder, ["buckets"])
    own = ddp.reducer
    try:
        with recorder:
            for _number in range(30):
                _pass(ddp)
    except ReductionError as error:
        assert ddp.reducer is own
        return str(error)
    return ""


def test_a_reducer_that_lacks_a_parameter_is_an_error(tmp_path: Path) -> None:
    for rank, each in enumerate(run_ranks(_unchecked, 2, tmp_path, str(tmp_path / "run"))):
        assert f"rank {rank}: after 'buckets" in each
        assert "the reducer of rank 0 does not hold '0.weight'" in each


def _spoiled(rank: int, _: int, folder: str, in_cures: bool) -> str:
    ddp, recorder = _attached(folder, ["buckets"])
    own = ddp.reducer
    weight = ddp.module[2].weight
    try:
        with recorder:
            for number in range(20):
                _pass(ddp)
                if rank == 1 and (ddp.reducer is not own) is in_cures and number > 4:
                    with torch.no_grad():
                        weight.add_(1e-3)
    except ReductionError as error:
        assert ddp.reducer is own
        return str(error)
    return ""


@pytest.mark.parametrize("in_cures", [True, False])
def test_weights_that_come_apart_are_an_error_if_a_cure_was_on(tmp_path: Path, in_cures: bool) -> None:
    said = run_ranks(_spoiled, 2, tmp_path, str(tmp_path / "run"), in_cures)
    for rank, each in enumerate(said):
        if in_cures:
            assert f"rank {rank}: after 'buckets" in each and "'2.weight' is different on ranks 0, 1" in each
            assert "last checkpoint" in each
        else:
            assert not each, "the script changes them itself"
