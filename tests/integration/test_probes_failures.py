"""A rank is killed or stops calling: the others get an error that says what failed, and the trace has it."""

import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import WAYS, backward, in_order, register, train
from support.models import branches
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BackwardTime, BucketTime, Flag, Kind
from pyddpdiag.trace.reader import is_in_flight
from pyddpdiag.trace.run import Run, open_run

GROUP_TIMEOUT_S = 3.0
STEPS_BEFORE_STALL = 4
STEPS_BEFORE_KILL = 5
FOREVER = 10**6


@dataclass(frozen=True)
class Failure:
    """What the training script of the rank that survived saw."""

    kinds: tuple[str, ...]
    text: str
    step: int
    took_s: float


def _kill_this_process() -> None:
    # As SIGKILL and TerminateProcess do: no handler, no clean-up.
    if hasattr(signal, "SIGKILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def _train_until_it_fails(
    recorder: pyddpdiag.Recorder, ddp: DistributedDataParallel, rank: int, steps: int, first: int = 0
) -> Failure | None:
    begun = time.monotonic()
    for step in recorder.steps(range(first, first + steps)):
        begun = time.monotonic()
        try:
            backward(ddp, rank, step)
        except Exception as error:
            kinds = tuple(kind.__name__ for kind in type(error).__mro__)
            return Failure(kinds, str(error), step, time.monotonic() - begun)
    return None


def _kill_job(rank: int, _: int, folder: str, way: str, seed: int) -> Failure | None:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder, capacity_mb=8) as recorder:
        register(recorder, ddp, way)
        failure = _train_until_it_fails(recorder, ddp, rank, STEPS_BEFORE_KILL)
        if rank == 1:
            threading.Timer(random.Random(seed).uniform(0.0, 0.2), _kill_this_process).start()
        return failure or _train_until_it_fails(recorder, ddp, rank, FOREVER, first=STEPS_BEFORE_KILL)


def _stall_job(rank: int, world_size: int, folder: str) -> dict[str, Failure | None]:
    """Rank 1 stops after some steps. Each way in a group of its own, which the failure breaks."""
    seen = {}
    for way in WAYS:
        group = dist.new_group(list(range(world_size)), timeout=timedelta(seconds=GROUP_TIMEOUT_S))
        ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002, process_group=group)
        with pyddpdiag.Recorder(Path(folder, way), capacity_mb=1) as recorder:
            register(recorder, ddp, way)
            if rank == 1:
                train(ddp, rank, STEPS_BEFORE_STALL)
                seen[way] = None
            else:
                seen[way] = _train_until_it_fails(recorder, ddp, rank, STEPS_BEFORE_STALL + 3)
            # In the default group, with a minute's timeout: rank 1 is alive, only silent.
            dist.barrier()
    return seen


def check_error(failure: Failure, *, gloo: tuple[str, ...]) -> None:
    assert "RuntimeError" in failure.kinds
    assert any(words in failure.text for words in gloo), failure.text
    assert "this error reached rank 0 while reducing bucket " in failure.text
    assert ".weight" in failure.text or ".bias" in failure.text
    assert f", of step {failure.step} in group " in failure.text
    assert "of 2 ranks, by the plain path." in failure.text
    assert " MB" in failure.text
    # A recorder alone cannot know whose fault it was, and says so.
    assert "the rank that failed first is unknown to this one" in failure.text


def check_trace(folder: Path, failure: Failure, *, gloo: tuple[str, ...]) -> Run:
    run = open_run(folder)
    buckets = run.ranks[0].of_kind(Kind.BUCKET)
    failed = (buckets["flags"] & Flag.ERROR) > 0
    assert failed.any()
    assert set(buckets["step"][failed].tolist()) == {failure.step}
    assert (buckets["times"][failed, BucketTime.ENDED] > 0).all()
    texts = [error for error in load_report(folder).errors if error.rank == 0]
    assert len(texts) == failed.sum()
    for error in texts:
        assert error.kind == "bucket"
        assert error.step == failure.step
        assert any(words in error.text for words in gloo), error.text
        # The whole text of the library, over as many records as it needs, and none of ours.
        assert "pyddpdiag" not in error.text
    assert any(error.text.split("\n")[0][:200] in failure.text for error in texts)
    return run


def check_whole_before(run: Run) -> None:
    """Every record of earlier steps is there on both ranks, and complete."""
    last_whole = min(int(rank.of_kind(Kind.BUCKET)["step"].max()) for rank in run.ranks) - 1
    assert last_whole >= 1
    counts = []
    for rank in run.ranks:
        assert (rank.malformed, rank.unknown) == (0, 0)
        assert rank.torn <= 1
        # Also a rank that had no time to say goodbye has recorded the names of all its buckets.
        assert set(rank.of_kind(Kind.BUCKET)["reference"].tolist()) == set(rank.sidecar.layouts)
        buckets = rank.of_kind(Kind.BUCKET)
        before = buckets[buckets["step"] <= last_whole]
        assert not is_in_flight(before).any()
        assert not ((before["flags"] & Flag.ERROR) > 0).any()
        assert before["sequence"].tolist() == list(range(len(before)))
        in_order(before, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
        per_step = np.bincount(before["step"])
        assert per_step[0] == 1
        assert set(per_step[1:].tolist()) == {int(per_step[1])}
        counts.append(len(before))
    assert counts[0] == counts[1]


def check_passes(run: Run, failure: Failure) -> None:
    """The pass that failed is closed, without an end; those before it have one."""
    passes = run.ranks[0].of_kind(Kind.BACKWARD)
    assert not is_in_flight(passes).any()
    failed = passes["step"] == failure.step
    assert failed.sum() == 1
    assert (((passes["flags"] & Flag.ABANDONED) > 0) == failed).all()
    assert ((passes["times"][:, BackwardTime.FINALIZE_END] == 0) == failed).all()


# The first bucket in the queue times out, which closes the connection: all that the ones behind it hear.
LATE = ("Timed out waiting", "Application timeout caused pair closure")
GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@pytest.mark.parametrize(("way", "seed"), [("native", 1), ("timed", 2), ("native", 3)])
def test_a_rank_is_killed(tmp_path: Path, way: str, seed: int) -> None:
    failure = run_ranks(_kill_job, 2, tmp_path, str(tmp_path / "run"), way, seed, lost=frozenset({1}))[0]
    assert isinstance(failure, Failure)
    check_error(failure, gloo=GONE)
    # Seconds, and not the group's timeout of a minute.
    assert failure.took_s < 20
    run = check_trace(tmp_path / "run", failure, gloo=GONE)
    check_whole_before(run)
    check_passes(run, failure)
    assert [rank.header.closed for rank in run.ranks] == [True, False]
    # The traces of both can.
    found = {finding.kind: finding for finding in load_report(tmp_path / "run").verdict.findings}
    assert found["rank_lost"].rank == 1
    assert (found["operation_failed"].rank, found["operation_failed"].evidence["reached"]) == (1, 0)
    assert "failed after rank 1 was lost; the earliest on rank 0" in found["operation_failed"].message


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Failure | None]]:
    folder = tmp_path_factory.mktemp("stalled")
    return folder, run_ranks(_stall_job, 2, folder, str(folder))[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_stops_calling(stalled: tuple[Path, dict[str, Failure | None]], way: str) -> None:
    folder, seen = stalled
    failure = seen[way]
    assert failure is not None
    assert failure.step == STEPS_BEFORE_STALL
    check_error(failure, gloo=LATE)
    assert GROUP_TIMEOUT_S - 0.5 <= failure.took_s < GROUP_TIMEOUT_S + 20
    run = check_trace(folder / way, failure, gloo=LATE)
    assert any(
        f"Timed out waiting {GROUP_TIMEOUT_S * 1e3:.0f}ms" in e.text for e in load_report(run.folder).errors
    )
    check_whole_before(run)
    check_passes(run, failure)
    # Rank 1 never brought the bucket: its last sequence is below rank 0's.
    ends = [int(rank.of_kind(Kind.BUCKET)["sequence"].max()) for rank in run.ranks]
    assert ends[1] < ends[0]
