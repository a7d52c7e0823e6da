"""Reductions of the script's own that have the same size and are not the same: Gloo lets them pass."""

from pathlib import Path
from typing import Final

import pytest
import torch
import torch.distributed as dist
from support.hooked import backward
from support.models import branches
from support.ranks import ran_once
from support.reported import findings
from torch.distributed import all_reduce
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.run import open_run

Trained = tuple[Path, list[list[float]]]

SUM, MAX, MIN = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN
STEPS: Final = 6
CALLS: Final = 60
"""In each step of a job in which the first calls are no longer kept one by one."""

JOBS: Final = ("same", "op", "integers", "reduce", "late", "subgroup")


def _call(job: str, rank: int, step: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    wrong = rank == 1 and step == 4
    values = torch.full((8,), 1.0 + rank)
    if job == "same":
        # Two operations by turns, on all ranks.
        all_reduce(values, SUM)
        all_reduce(values, op=MAX)
    elif job == "op":
        dist.all_reduce(values, op=MAX if wrong else SUM)
    elif job == "integers":
        # Both are "other" to the records.
        dist.all_reduce(torch.ones(4, dtype=torch.int64) if wrong else torch.ones(8, dtype=torch.int32))
    elif job == "reduce":
        dist.reduce(values, 0, op=MIN if wrong else SUM)
    elif job == "late":
        for call in range(CALLS):
            all_reduce(values, MAX if rank == 1 and (step, call) == (3, 7) else SUM)
    elif group is not None:
        all_reduce(values, MAX if wrong else SUM, group=group)
    return values


def _job(rank: int, _: int, folder: str) -> list[float]:
    # A rank that is in no group but this one.
    pair = dist.new_group([0, 1])
    own, kept = dist.ProcessGroup.__dict__["allreduce"], []
    for job in JOBS:
        ddp = DistributedDataParallel(branches(torch.float32))
        with pyddpdiag.Recorder(f"{folder}/{job}", capacity_mb=1) as recorder:
            recorder.attach(ddp)
            for step in recorder.steps(range(STEPS)):
                backward(ddp, rank, step)
                values = _call(job, rank, step, pair)
                if job == "op":
                    kept.append(values.min().item())
    assert dist.ProcessGroup.__dict__["allreduce"] is own
    dist.all_reduce(torch.ones(2))
    return kept


WRONG = "mismatched_all_reduce"
trained = ran_once(_job, 2)


def test_torch_gives_wrong_numbers_without_a_word(trained: Trained) -> None:
    _, values = trained
    assert values == [[3.0, 3.0, 3.0, 3.0, 2.0, 3.0]] * 2


def test_operations_by_turns_on_all_ranks_are_no_finding(trained: Trained) -> None:
    assert findings(trained[0] / "same", WRONG) == []
    (kept,) = open_run(trained[0] / "same").ranks[0].sidecar.training.reductions
    assert (kept.operation, kept.calls, kept.first) == ("all_reduce", 12, "ab" * 6)
    assert [(kind.said, kind.calls) for kind in kept.kinds] == [("SUM of float32", 6), ("MAX of float32", 6)]
    assert kept.first_steps == tuple(step for step in range(STEPS) for _ in range(2))


@pytest.mark.parametrize(
    ("job", "what", "sides", "call"),
    [
        ("op", "all_reduce", ("SUM of float32", "MAX of float32"), 4),
        ("integers", "all_reduce", ("SUM of int32", "SUM of int64"), 4),
        ("reduce", "reduce", ("SUM of float32", "MIN of float32"), 4),
        ("subgroup", "all_reduce", ("SUM of float32", "MAX of float32"), 4),
    ],
)
def test_both_sides_of_a_reduction_that_differs_are_named(
    trained: Trained, job: str, what: str, sides: tuple[str, str], call: int
) -> None:
    (one,) = findings(trained[0] / job, WRONG)
    assert (one.confidence, one.since_step, one.evidence["sequence"]) == ("certain", 4, call)
    assert one.evidence["operation"] == f"gloo:{what}"
    assert (one.evidence["rank_0"], one.evidence["rank_1"]) == sides
    assert all(side in one.message for side in sides)
    assert Path(__file__).name in str(one.evidence["lines"])


def test_a_call_among_many_is_known_by_their_numbers(trained: Trained) -> None:
    """Call 187 of 360: neither among the first 128 nor among the last."""
    (one,) = findings(trained[0] / "late", WRONG)
    assert (one.confidence, one.since_step) == ("certain", None)
    assert (one.evidence["rank_0"], one.evidence["rank_1"]) == ("SUM of float32", "MAX of float32")
