"""Trials of cures in running trainings: what is found, what is left, and what happens to a rank that dies in one."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.ranks import run_ranks
from support.trial_job import noted, short_blocks, train, wide
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.cures.ddp_reducer import Reducers
from pyddpdiag.errors import ReductionError
from pyddpdiag.model.tried import NOTHING, TODAY, Tried, tried_from_json
from pyddpdiag.record import attachments


def _train_wide(folder: str, options: pyddpdiag.Trial, passes: int) -> Tried | None:
    ddp = DistributedDataParallel(wide())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001, momentum=0.9)
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
    recorder.attach(ddp, trial=options)
    with recorder:
        for _ in range(passes):
            with recorder.step():
                ddp(torch.ones(2, 512)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            trial = noted(recorder.path)
            if trial is not None and trial.state != "running":
                break
    return noted(recorder.path)


def _several(_: int, __: int, folder: str) -> Tried | None:
    return _train_wide(folder, pyddpdiag.Trial(["shared-memory", "views", "buckets"], minutes=0.3), 5000)


def test_all_ranks_find_the_same(tmp_path: Path) -> None:
    one, other = run_ranks(_several, 2, tmp_path, str(tmp_path / "run"), timeout_s=400)
    assert one == other
    cures = {each.name: each for each in one.cures}
    shared = cures["shared memory"]
    assert shared.same_bits and shared.options == {"--shared-memory": "auto"}
    assert shared.exposed_ms is not None and shared.step_ms is not None
    assert 0 < shared.exposed_ms < shared.step_ms
    assert len([name for name in cures if name.startswith("buckets of")]) >= 2
    assert one.today.blocks[0].first_step > 0
    assert one.state in ("decided", "time_over")
    assert one.best == one.kept


def _gain(rank: int, _: int, folder: str) -> Tried | None:
    short_blocks()
    ddp = DistributedDataParallel(wide())
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
    recorder.attach(ddp, trial=pyddpdiag.Trial(["shared-memory"], minutes=5))
    with recorder:
        for _number in range(400):
            ddp(torch.ones(2, 512)).square().mean().backward()
            if rank == 1 and attachments.request_of(ddp).shared_memory == "off":
                time.sleep(0.5)  # far more than what a busy machine adds
            trial = noted(recorder.path)
            if trial is not None and trial.state != "running":
                break
    return noted(recorder.path)


def test_the_faster_setting_is_found_and_kept(tmp_path: Path) -> None:
    one, other = run_ranks(_gain, 2, tmp_path, str(tmp_path / "run"), timeout_s=400)
    assert one == other
    (shared,) = one.cures
    assert (one.state, one.best, one.kept) == ("decided", *("shared memory",) * 2)
    assert shared.is_faster


def _lossy(rank: int, _: int, folder: str) -> Any:
    short_blocks()
    names = ["compress", "compress-fp16", "error-feedback"]
    return train(rank, Path(folder), 120, pyddpdiag.Trial(names, minutes=3, keep="none"))[1]


def test_lossy_cures_are_tried_only_by_name(tmp_path: Path) -> None:
    raw = run_ranks(_lossy, 2, tmp_path, str(tmp_path / "run"), timeout_s=400)
    assert raw[0] == raw[1]
    trial = tried_from_json(raw[0])
    assert trial is not None
    assert [each.name for each in trial.cures] == ["bf16", "fp16", "bf16 with error feedback"]
    assert all(each.blocks and not each.same_bits for each in trial.cures)
    assert trial.cures[2].options == {"--compress": "bf16", "--error-feedback": ""}


def _failing(rank: int, _: int, folder: str) -> Any:
    short_blocks()
    put_on = Reducers.put_on

    def refuse(self: Reducers, ddp: Any, sizes_mb: Any, views: bool | None) -> None:
        if rank == 1 and views:
            raise RuntimeError("no room for views")
        put_on(self, ddp, sizes_mb, views)

    Reducers.put_on = refuse  # type: ignore[method-assign]
    untouched, _none = train(rank, None, 60)
    return untouched, *train(rank, Path(folder), 60, pyddpdiag.Trial(["views", "shared-memory"], minutes=3))


def test_a_cure_that_fails_on_one_rank_is_left_by_all(tmp_path: Path) -> None:
    answers = run_ranks(_failing, 2, tmp_path, str(tmp_path / "run"), timeout_s=300)
    assert answers[0] == answers[1]
    untouched, tried, raw = answers[0]
    trial = tried_from_json(raw)
    assert untouched == tried and trial is not None
    views, shared = trial.cures
    assert views.left == "rank 1: no room for views" and not views.blocks
    assert shared.blocks


def _slow(rank: int, _: int, folder: str) -> Any:
    short_blocks()
    put_on, put_back = Reducers.put_on, Reducers.put_back
    slow = {"on": False}

    def noting(self: Reducers, ddp: Any, sizes_mb: Any, views: bool | None) -> None:
        put_on(self, ddp, sizes_mb, views)
        slow["on"] = True

    def noting_too(self: Reducers, ddp: Any) -> None:
        slow["on"] = False
        put_back(self, ddp)

    Reducers.put_on, Reducers.put_back = noting, noting_too  # type: ignore[method-assign]
    folder_of = Path(folder)
    ddp = DistributedDataParallel(wide())
    recorder = pyddpdiag.Recorder(folder_of, capacity_mb=1, lines=False, sample_connections=False)
    recorder.attach(ddp, trial=pyddpdiag.Trial(["views"], minutes=3))
    with recorder:
        for _number in range(200):
            ddp(torch.ones(2, 512)).square().mean().backward()
            if slow["on"] and rank == 1:
                time.sleep(0.5)  # far more than what a busy machine adds
            trial = noted(recorder.path)
            if trial is not None and trial.state == "decided":
                break
    return noted(recorder.path)


def test_a_slow_cure_is_left_at_once(tmp_path: Path) -> None:
    one, other = run_ranks(_slow, 2, tmp_path, str(tmp_path / "run"), timeout_s=300)
    assert one == other
    (views,) = one.cures
    assert len(views.blocks) == 1 and "its block took" in views.left
    assert (one.state, one.best, one.kept, one.now) == ("decided", TODAY, TODAY, TODAY)
    assert one.verdict in NOTHING


def _killed(rank: int, _: int, folder: str, at: int) -> str:
    short_blocks()
    ddp = DistributedDataParallel(wide())
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
    recorder.attach(ddp, trial=pyddpdiag.Trial(["shared-memory", "views", "buckets"], minutes=5))
    try:
        for number in range(400):
            if rank == 1 and number == at:
                os.kill(os.getpid(), signal.SIGKILL)
            ddp(torch.ones(2, 512)).square().mean().backward()
    except (ReductionError, RuntimeError) as error:
        return str(error)
    return "nothing happened"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
@pytest.mark.parametrize("at", [3, 11, 13, 20, 31])
def test_a_rank_that_is_killed_ends_it(tmp_path: Path, at: int) -> None:
    # In the middle of blocks, and right where the ranks meet between two of them.
    folder = tmp_path / "run"
    said = run_ranks(_killed, 2, tmp_path, str(folder), at, lost=frozenset({1}), timeout_s=200)[0]
    assert said != "nothing happened"
    trial = noted(folder / "rank_1.ddptrace")
    assert trial is not None
    assert trial.now == TODAY or trial.now in {each.name for each in trial.cures}


def _stopping(rank: int, _: int, folder: str) -> Any:
    short_blocks()
    try:
        train(rank, Path(folder), 400, pyddpdiag.Trial(["views"], minutes=0.02, stop=True))
    except SystemExit as end:
        return end.code
    return "went on"


def test_the_training_can_be_ended(tmp_path: Path) -> None:
    assert run_ranks(_stopping, 2, tmp_path, str(tmp_path / "run"), timeout_s=300) == [0, 0]
    trial = noted(tmp_path / "run" / "rank_0.ddptrace")
    assert trial is not None and trial.state != "running" and trial.kept == TODAY, "nothing is kept"
