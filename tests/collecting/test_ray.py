"""Ray Train's torch backend, recorded by the line of docs/schedulers.md and by a `Recorder` of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import python

from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

DRIVER = """
import sys
import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def train(config):
    recorder = None
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    if config["folder"]:
        import pyddpdiag
        recorder = pyddpdiag.Recorder(config["folder"])
        recorder.attach(ddp)
    for _ in range(40):
        ddp(torch.ones(2, 8)).sum().backward()
    if recorder is not None:
        recorder.close()

ray.init(num_cpus=2, include_dashboard=False)
scaling, place = ScalingConfig(num_workers=2), RunConfig(storage_path=sys.argv[1])
given = {"folder": sys.argv[2] if len(sys.argv) > 2 else ""}
gloo = TorchConfig(backend="gloo")
TorchTrainer(
    train, train_loop_config=given, torch_config=gloo, scaling_config=scaling, run_config=place
).fit()
"""


def driven(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What a command that runs the driver, in its folder, has printed."""
    pytest.importorskip("ray.train")
    (folder / "driver.py").write_text(DRIVER, encoding="utf-8")
    return python(*command, cwd=folder, timeout_s=240, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"})


def test_one_folder_and_one_verdict(tmp_path: Path) -> None:
    run = ["-m", "pyddpdiag", "run", "--trace", "run", "--", sys.executable]
    ended = driven(tmp_path, *run, "driver.py", str(tmp_path / "kept"))
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    assert [rank.rank for rank in open_run(tmp_path / "run").ranks] == [0, 1]
    assert (ended.stdout + ended.stderr).count("Where a step goes") == 1, ended.stderr


def test_a_recorder_in_the_training_function(tmp_path: Path) -> None:
    """In a cluster that runs already: nothing of it was started by `pyddpdiag run`."""
    ended = driven(tmp_path, "driver.py", str(tmp_path / "kept"), str(tmp_path / "run"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = open_run(tmp_path / "run")
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert all(rank.header.closed and len(rank.of_kind(Kind.BUCKET)) == 40 for rank in run.ranks)
