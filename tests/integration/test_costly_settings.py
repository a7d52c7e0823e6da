"""Anomaly detection that was left on, with what it costs; and a training that has looked for its error already."""

from pathlib import Path

import torch
from support.ranks import run_ranks
from support.reported import findings
from support.watched_ways import record_each
from torch.nn.parallel import DistributedDataParallel

WAYS = ("always", "at first")


def _train(way: str, rank: int) -> None:
    torch.manual_seed(rank)
    ddp = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(30)]))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.001)
    for step in range(100):
        optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(way == "always" or step == 0):
            ddp(torch.randn(2, 32)).square().mean().backward()
        optimizer.step()


def _job(rank: int, _: int, folder: str) -> None:
    record_each(Path(folder), WAYS, rank, _train)


def test_anomaly_detection_is_said_where_it_was_left_on(tmp_path: Path) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path))
    always, at_first = (findings(tmp_path / way, "costly_settings") for way in WAYS)
    assert not at_first
    (one,) = always
    assert one.cost_ms is not None and one.cost_ms > 0.0
    assert "anomaly detection" in one.message and "set_detect_anomaly" in one.advice
