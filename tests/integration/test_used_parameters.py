"""Which parameters get a gradient, counted where DDP searches for unused ones, and what the sidecar says of DDP."""

from pathlib import Path

import torch
from support.ranks import run_ranks
from support.reported import findings
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.run import open_run

PASSES = 12


class Branches(nn.Module):
    """Uses `side` where the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.side = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, *, with_side: bool) -> torch.Tensor:
        y = self.norm(self.body(x))
        return self.side(y) if with_side else y


def _job(_: int, __: int, folder: str) -> None:
    torch.manual_seed(1)
    searching = [DistributedDataParallel(Branches(), find_unused_parameters=True) for _ in range(4)]
    by_hand = searching.pop()  # its hook is registered: who uses what is not seen
    plain = DistributedDataParallel(Branches(), broadcast_buffers=False)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for ddp in (*searching, plain):
            recorder.attach(ddp)
        by_hand.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
        for step in recorder.steps(range(PASSES)):
            for ddp, used in zip((*searching, plain), (True, False, step % 4 > 0, True), strict=True):
                # Passes that do not reduce are none of DDP's searches.
                with ddp.no_sync():
                    ddp(torch.randn(8, 4), with_side=not used).sum().backward()
                ddp(torch.randn(8, 4), with_side=used).sum().backward()
            by_hand(torch.randn(8, 4), with_side=step % 4 > 0).sum().backward()


def test_the_search_is_judged_by_what_it_found_in_every_pass(tmp_path: Path) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path))
    for rank in open_run(tmp_path).ranks:
        always, never, changing, plain, by_hand = (rank.sidecar.modules[index] for index in range(5))
        known = {"passes": PASSES, "passes_with_unused": 0, "most_unused": 0, "passes_changed": 0}
        assert dict(always.used) == known
        assert dict(never.used) == {**known, "passes_with_unused": PASSES, "most_unused": 2}
        assert [never.parameters[place] for place in never.never_used] == []
        assert dict(changing.used) == {
            **known,
            "passes_with_unused": 3,
            "most_unused": 2,
            "passes_changed": 9,
        }
        assert plain.used == by_hand.used == {}
        assert (plain.ddp["broadcast_buffers"], plain.ddp["find_unused_parameters"]) == (0, 0)
        assert (always.ddp["broadcast_buffers"], always.ddp["buffers"]) == (1, 3)
        # Running mean and variance, and the number of batches.
        assert always.ddp["buffer_bytes"] == 2 * 4 * 4 + 8
    found = findings(tmp_path, "needless_unused_search")
    assert [one.evidence["unused"] for one in found] == [0, 2]
