"""Whether this torch's Gloo averages in a reduce-scatter, against what the doctor says of its version."""

import warnings
from pathlib import Path

from support.ranks import run_ranks

from pyddpdiag.doctor.checks.installed import check
from pyddpdiag.doctor.main import Asked, situation_of


def _halves(rank: int, _: int) -> float:
    import torch
    import torch.distributed as dist

    out = torch.zeros(2)
    with warnings.catch_warnings():
        # Its successor of another name is not in every torch.
        warnings.simplefilter("ignore", FutureWarning)
        dist.reduce_scatter_tensor(out, torch.full((4,), float(rank + 1)), op=dist.ReduceOp.AVG)
    return float(out[0])


def test_the_doctor_tells_sums_where_this_torch_makes_them(tmp_path: Path) -> None:
    answers = run_ranks(_halves, 2, tmp_path)
    assert answers in ([1.5, 1.5], [3.0, 3.0])
    torch = next(outcome for outcome in check(situation_of(Asked())) if outcome.name == "torch")
    assert ("returns sums over Gloo" in torch.text) is (answers[0] == 3.0)
