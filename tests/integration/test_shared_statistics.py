"""Statistics of gradients that are taken by whichever rank sums them in shared memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.hooked import complete
from support.models import batch, branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.paths.options import SharedMemory
from pyddpdiag.trace.layout import Flag, GradientValue, Kind
from pyddpdiag.trace.reader import read_trace

STEPS = 4
PLACES: tuple[SharedMemory, ...] = ("off", "require")


def _job(rank: int, _: int, folder: str, dtype: torch.dtype, parameters: bool) -> None:
    """Every second pass is watched; the same training over Gloo and in shared memory."""
    for place in PLACES:
        ddp = DistributedDataParallel(branches(dtype), bucket_cap_mb=0.002)
        with pyddpdiag.Recorder(
            f"{folder}/{place}", capacity_mb=1, statistics_interval=2, parameter_statistics=parameters
        ) as recorder:
            recorder.attach(ddp, shared_memory=place)
            for step in recorder.steps(range(STEPS)):
                ddp.zero_grad()
                ddp(batch(rank, step, dtype)).square().mean().backward()


@pytest.mark.parametrize(
    ("dtype", "parameters"),
    [(torch.float32, False), (torch.float64, True)],
    ids=["buckets of f32", "parameters of f64"],
)
def test_they_are_those_that_are_taken_over_gloo(
    tmp_path: Path, dtype: torch.dtype, parameters: bool
) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path / "run"), dtype, parameters)
    for rank in (0, 1):
        notes, buckets = {}, {}
        for place in PLACES:
            trace = read_trace(tmp_path / "run" / place / f"rank_{rank}.ddptrace")
            records = complete(trace, Kind.GRADIENT)
            notes[place] = records[np.lexsort((records["flags"], records["index"], records["step"]))]
            buckets[place] = complete(trace, Kind.BUCKET)
        gloo, shared = notes["off"], notes["require"]
        assert ((buckets["require"]["flags"] & Flag.SHARED) > 0).all()
        assert len(gloo) == len(shared) > 0
        assert set(shared["step"].tolist()) == {0, 2}
        assert (gloo["step"] == shared["step"]).all() and (gloo["index"] == shared["index"]).all()
        values = [records["times"][:, :2].view(np.float64) for records in (gloo, shared)]
        # The order in which units are added up decides the last bits of a sum.
        np.testing.assert_allclose(values[0][:, 0], values[1][:, 0], rtol=1e-12)
        assert (values[0][:, 1] == values[1][:, 1]).all()
        np.testing.assert_allclose(
            *(records["times"][:, GradientValue.LEVEL].view(np.float64) for records in (gloo, shared)),
            rtol=1e-12,
        )
        if not parameters:
            assert gloo["times"][:, GradientValue.LEVEL].all()
        same = [
            value for value in GradientValue if GradientValue.ABSOLUTE_MAXIMUM < value < GradientValue.LEVEL
        ]
        assert (gloo["times"][:, same] == shared["times"][:, same]).all()
