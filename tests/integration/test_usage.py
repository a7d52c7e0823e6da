"""What a recorder notes of the processor at the end of each pass, from real ranks."""

import gc
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support.hooked import WAYS, backward, complete, register
from support.models import batch, branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Kind, UsageValue
from pyddpdiag.trace.run import open_run

STEPS = 12
BUSY_NS = 20_000_000


def _job(rank: int, _: int, folder: str) -> int:
    before = len(gc.callbacks)
    for way in WAYS:
        ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
        with pyddpdiag.Recorder(Path(folder, way), capacity_mb=1) as recorder:
            register(recorder, ddp, way)
            for step in recorder.steps(range(STEPS)):
                if step % 2:
                    end = time.thread_time_ns() + BUSY_NS
                    while time.thread_time_ns() < end:
                        pass
                if step == STEPS - 1:
                    gc.collect()
                with ddp.no_sync():  # A pass that does not reduce is no reading.
                    backward(ddp, rank, step)
                backward(ddp, rank, step)
    model = branches(torch.float32)
    with (
        pyddpdiag.Recorder(Path(folder, "reducer"), capacity_mb=1) as recorder,
        pyddpdiag.GradientReducer(model.named_parameters(), recorder=recorder) as reducer,
    ):
        for step in recorder.steps(range(STEPS)):
            model(batch(rank, step, torch.float32)).square().mean().backward()
            reducer.all_reduce()
    return len(gc.callbacks) - before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("usage")
    assert run_ranks(_job, 2, made, str(made)) == [0, 0], (
        "a closed recorder leaves a callback with the collector"
    )
    return made


@pytest.mark.parametrize("way", [*WAYS, "reducer"])
def test_each_pass_has_one_reading_and_readings_only_grow(folder: Path, way: str) -> None:
    for trace in open_run(folder / way).ranks:
        records = complete(trace, Kind.USAGE)
        assert records["step"].tolist() == list(range(STEPS))
        assert len(set(records["thread"].tolist())) == 1
        values = records["times"]
        for column in UsageValue:
            if column != UsageValue.LOAD_MILLI:
                assert (np.diff(values[:, column]) >= 0).all(), column.name
        assert (values[:, UsageValue.PROCESS_CPU] >= values[:, UsageValue.THREAD_CPU]).all()
        linux = sys.platform == "linux"
        for column in (UsageValue.RUN_DELAY, UsageValue.INVOLUNTARY_SWITCHES, UsageValue.LOAD_MILLI):
            assert (values[:, column] == -1).all() != linux, column.name


@pytest.mark.parametrize("way", WAYS)
def test_busy_steps_show_their_processor_time_and_a_collection_its_pause(folder: Path, way: str) -> None:
    for trace in open_run(folder / way).ranks:
        cpu = np.diff(trace.of_kind(Kind.USAGE)["times"][:, UsageValue.THREAD_CPU])
        busy = trace.of_kind(Kind.USAGE)["step"][1:] % 2 == 1
        # Windows counts in ticks of 16 ms.
        assert (cpu[busy] >= BUSY_NS - 16_000_000).all()
        assert np.median(cpu[busy]) > np.median(cpu[~busy])
        collected = np.diff(trace.of_kind(Kind.USAGE)["times"][:, UsageValue.COLLECTOR])
        assert collected[-1] > 0
