"""Phases that a program names, from the context manager to the report."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support.hooked import backward, complete
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import RecorderClosedError, UsageError
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import Kind, PhaseTime
from pyddpdiag.trace.run import open_run

STEPS = 12
PAUSE_S = 0.2
LONG = "a name that is much too long for a record \u00e4"


def _job(rank: int, _: int, folder: str) -> list[str]:
    seen = []
    ddp = DistributedDataParallel(branches(torch.float32))
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(STEPS)):
            if rank == 1 and step % 3 == 2:
                with recorder.phase("checkpoint"):
                    time.sleep(PAUSE_S)
            backward(ddp, rank, step)
        try:
            with recorder.phase("fails"):
                raise KeyError("inside")
        except KeyError as error:
            seen.append(str(error))
        with recorder.phase(LONG):
            pass
        recorder.pause()
        with recorder.phase("not recorded"):
            pass
        recorder.resume()
        try:
            with recorder.phase(""):
                pass
        except UsageError:
            seen.append("no name")
    try:
        with recorder.phase("late"):
            pass
    except RecorderClosedError:
        seen.append("closed")
    return seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("phases")
    assert run_ranks(_job, 2, made, str(made)) == [["'inside'", "no name", "closed"]] * 2
    return made


def test_a_phase_has_its_times_its_step_and_its_name(folder: Path) -> None:
    for trace in open_run(folder).ranks:
        records = complete(trace, Kind.PHASE)
        names = [bytes(name).decode() for name in records["name"]]
        assert names[-2:] == ["fails", LONG[:31]]
        mine = records[[name == "checkpoint" for name in names]]
        assert mine["step"].tolist() == ([2, 5, 8, 11] if trace.rank == 1 else [])
        took = mine["times"][:, PhaseTime.END] - mine["times"][:, PhaseTime.BEGIN]
        assert (took >= 0.9e9 * PAUSE_S).all()
        assert (np.diff(mine["times"][:, PhaseTime.BEGIN]) > 0).all()


def test_the_report_names_the_rank_that_alone_is_in_a_phase(folder: Path) -> None:
    report = load_report(folder)
    found = [finding for finding in report.verdict.findings if finding.kind in ("pause", "episodic_rank")]
    assert [(finding.kind, finding.rank) for finding in found] == [("pause", 1)]
    assert found[0].evidence["phase"] == "checkpoint"
    listed = {(phase.name, phase.rank): phase.count for phase in report.phases}
    assert listed[("checkpoint", 1)] == 4 and ("checkpoint", 0) not in listed
