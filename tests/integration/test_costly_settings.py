"""Anomaly detection that was left on, with what it costs; and a training that has looked for its error already."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from train_support import ended

from pyddpdiag.pipeline import load_report

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(30)])
ddp = DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), 0.001)
way = sys.argv[1]
for step in range(300):
    optimizer.zero_grad()
    with torch.autograd.set_detect_anomaly(way == "always" or step == 0):
        ddp(torch.randn(2, 32)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("way", ["always", "at first"])
def test_anomaly_detection_is_said_where_it_was_left_on(tmp_path: Path, way: str) -> None:
    (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
    run = ("run", "--trace", "run", "--nproc", "2", "job.py", way)
    code, err = ended(sys.executable, "-m", "pyddpdiag", *run, cwd=tmp_path)
    assert code == 0, err
    found = [one for one in load_report(tmp_path / "run").verdict.findings if one.kind == "costly_settings"]
    assert len(found) == (way == "always"), err
    for one in found:
        assert one.cost_ms is not None and one.cost_ms > 0.0
        assert "anomaly detection" in one.message and "set_detect_anomaly" in one.advice
