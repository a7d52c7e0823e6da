"""Ray Train's torch backend, recorded by the line of docs/schedulers.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyddpdiag.trace.run import open_run

DRIVER = """
import sys
import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def train():
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    for _ in range(40):
        ddp(torch.ones(2, 8)).sum().backward()

ray.init(num_cpus=2, include_dashboard=False)
scaling, place = ScalingConfig(num_workers=2), RunConfig(storage_path=sys.argv[1])
TorchTrainer(train, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling, run_config=place).fit()
"""


def test_one_folder_and_one_verdict(tmp_path: Path) -> None:
    pytest.importorskip("ray.train")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    run = [sys.executable, "-m", "pyddpdiag", "run", "--trace", "run", "--", sys.executable, "driver.py"]
    ended = subprocess.run(
        [*run, str(tmp_path / "kept")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    assert [rank.rank for rank in open_run(tmp_path / "run").ranks] == [0, 1]
    assert ended.stdout.count("Where each rank's life went") == 1
