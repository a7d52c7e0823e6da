"""Fingerprints of weights in a real training: the same weights have the same ones, however often they are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.analyse.fingerprints import rank_weights
from pyddpdiag.trace.reader import read_trace

EVERY, PASSES = 3, 120
RARER = 16 * EVERY
"""The pass from which on each parameter is read four times as rarely (`interval_at`, csrc/torch/probe)."""


def _job(rank: int, _: int, folder: str) -> None:
    del rank
    ddp = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Linear(96, 8)))
    with pyddpdiag.Recorder(folder, capacity_mb=1, weights_interval=EVERY) as recorder:
        recorder.attach(ddp)
        for _ in range(PASSES):
            ddp(torch.ones(2, 64)).sum().backward()


def test_weights_that_do_not_change_keep_their_fingerprints(tmp_path: Path) -> None:
    run_ranks(_job, 1, tmp_path, str(tmp_path / "run"))
    marks = rank_weights(read_trace(tmp_path / "run" / "rank_0.ddptrace"))
    assert np.unique(marks.parameter).tolist() == [0, 1, 2, 3]
    for parameter in range(4):
        mine = marks.parameter == parameter
        taken = marks.number[mine]
        assert (taken < RARER).sum() > (taken >= RARER).sum() >= 3, taken
        assert len(np.unique(marks.bits[mine])) == len(np.unique(marks.norm[mine])) == 1
