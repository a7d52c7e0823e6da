"""Gradients that are not finite, found by whichever rank sums them in shared memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.hooked import complete
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Flag, Kind
from pyddpdiag.trace.reader import read_trace

STEPS, SPOILED, AT = 5, 3, 11


def _spoil(gradient: torch.Tensor) -> torch.Tensor:
    spoiled = gradient.clone()
    spoiled.view(-1)[AT] = torch.inf
    return spoiled


def _job(rank: int, _: int, folder: str, dtype: torch.dtype) -> None:
    """No pass is watched. Rank 1 puts an infinity into the second layer's gradient in one step."""
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False, dtype=dtype) for _ in range(2)))
    ddp = DistributedDataParallel(model)
    with pyddpdiag.Recorder(
        folder, capacity_mb=1, statistics_interval=0, parameter_statistics=True
    ) as recorder:
        recorder.attach(ddp, shared_memory="require")
        for step in recorder.steps(range(STEPS)):
            spoils = (rank, step) == (1, SPOILED)
            handle = model[1].weight.register_hook(_spoil) if spoils else None
            ddp.zero_grad()
            ddp(torch.ones(2, 8, dtype=dtype)).sum().backward()
            if handle is not None:
                handle.remove()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rank_and_the_parameter_are_in_the_trace_though_no_pass_is_watched(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path / "run"), dtype)
    for rank in (0, 1):
        trace = read_trace(tmp_path / "run" / f"rank_{rank}.ddptrace")
        buckets = complete(trace, Kind.BUCKET)
        shared = buckets[(buckets["flags"] & Flag.SHARED) > 0]
        finite = (shared["flags"] & Flag.FINITE) > 0
        assert set(shared["step"][~finite].tolist()) == ({SPOILED} if rank == 1 else set())
        # Sums of parameters would be those of the averages.
        notes = complete(trace, Kind.GRADIENT)
        assert len(notes) == rank
    [note] = notes["times"]
    assert notes["step"].tolist() == [SPOILED]
    assert np.isnan(note[:2].view(np.float64)).all()
    number, first, parameter = note[2:5].tolist()
    assert (number, parameter) == (1, 1)
    assert first % 64 == AT
