"""What a GradientReducer leaves in the trace: buckets, passes and statistics as of DDP, and the sentinel's words."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.hooked import complete, in_order, times
from support.models import batch, branches
from support.ranks import ran_once, run_ranks

import pyddpdiag
from pyddpdiag.errors import GradientError
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BackwardTime, BucketTime, Flag, GradientValue, Kind
from pyddpdiag.trace.run import open_run

Trained = tuple[Path, list[dict[str, Any]]]

# Past the passes in which the worker probe listens anyway.
STEPS = 20


def _backward(model: torch.nn.Module, rank: int, step: int) -> None:
    model(batch(rank, step, torch.float32)).square().mean().backward()


def _train(rank: int, folder: str, given: bool) -> dict[str, Any]:
    model, twin = branches(torch.float32), branches(torch.float32)
    squares, largest = [], []
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1, statistics_interval=1)
    with (
        recorder,
        pyddpdiag.GradientReducer(
            model.named_parameters(), bucket_cap_mb=0.002, recorder=recorder if given else None
        ) as reducer,
    ):
        for step in recorder.steps(range(STEPS)):
            twin.zero_grad()
            _backward(twin, rank, step)
            own = [p.grad.double() for p in twin.parameters() if p.grad is not None]
            squares.append(sum(float(g.square().sum()) for g in own))
            largest.append(max(float(g.abs().max()) for g in own))
            model.zero_grad()
            if step == 5:  # accumulates; the sum must be that of one pass
                with reducer.no_sync():
                    _backward(model, rank, step)
                model.zero_grad()
            _backward(model, rank, step)
            reducer.all_reduce()
    return {"squares": squares, "largest": largest, "buckets": len(reducer._buckets)}


def _job(rank: int, _: int, folder: str) -> dict[str, Any]:
    answer = _train(rank, f"{folder}/given", True)
    _train(rank, f"{folder}/beside", False)
    return answer


trained = ran_once(_job, 2)


def test_buckets_and_passes_are_recorded(trained: Trained) -> None:
    folder, answers = trained
    count = answers[0]["buckets"]
    assert count > 2
    for rank in open_run(folder / "given").ranks:
        buckets = complete(rank, Kind.BUCKET)
        assert len(buckets) == count * STEPS
        assert (buckets["flags"] & Flag.REDUCER).all()
        in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
        in_order(buckets, BucketTime.ENDED, BucketTime.CONSUMED)
        assert buckets["step"].tolist() == [step for step in range(STEPS) for _ in range(count)]
        passes = complete(rank, Kind.BACKWARD)
        assert len(passes) == STEPS
        in_order(passes, BackwardTime.FIRST_GRADIENT, BackwardTime.FINALIZE_BEGIN, BackwardTime.FINALIZE_END)
        # The first bucket leaves while the backward pass still brings gradients.
        first = buckets[buckets["index"] == 0]
        assert (times(first, BucketTime.ENQUEUED) < times(passes, BackwardTime.FINALIZE_BEGIN)).all()
        assert not (complete(rank, Kind.COLLECTIVE)["name"].astype(str) == "gloo:all_reduce").any()


def test_statistics_are_of_the_gradients_before_they_are_averaged(trained: Trained) -> None:
    folder, answers = trained
    for rank, answer in zip(open_run(folder / "given").ranks, answers, strict=True):
        records = complete(rank, Kind.GRADIENT)
        values = records["times"].view(np.float64)
        for step in range(STEPS):
            mine = values[records["step"] == step]
            assert math.isclose(
                mine[:, GradientValue.SUM_SQUARES].sum(), answer["squares"][step], rel_tol=1e-6
            )
            assert math.isclose(
                mine[:, GradientValue.ABSOLUTE_MAXIMUM].max(), answer["largest"][step], rel_tol=1e-6
            )


def test_the_report_names_parameters_and_hides_what_ran_beside_the_backward_pass(trained: Trained) -> None:
    report = load_report(trained[0] / "given")
    named = {name for bucket in report.buckets for name in bucket.parameters}
    assert named == {name for name, _ in branches(torch.float32).named_parameters()}
    assert {row.name for row in report.other_collectives} <= {"gloo:all_gather"}


def _not_a_number(rank: int, _: int, folder: str) -> list[str]:
    model = branches(torch.float32)
    errors = []
    with (
        pyddpdiag.Recorder(folder, capacity_mb=1, sentinel="raise", sentinel_interval=2) as recorder,
        pyddpdiag.GradientReducer(
            model.named_parameters(), bucket_cap_mb=0.002, recorder=recorder
        ) as reducer,
    ):
        for step in recorder.steps(range(4)):
            model.zero_grad()
            loss = model(batch(rank, step, torch.float32)).square().mean()
            (loss * float("nan") if step == 2 and rank == 1 else loss).backward()
            try:
                reducer.all_reduce()
                errors.append("")
            except GradientError as error:
                errors.append(str(error))
    return errors


def test_the_sentinel_watches_them_too(tmp_path: Path) -> None:
    for words in run_ranks(_not_a_number, 2, tmp_path, str(tmp_path)):
        assert [bool(word) for word in words] == [False, False, True, False]
        assert "rank 1 put" in words[2] and "of step 2" in words[2] and "the first in '" in words[2]


def _paused_and_closed(rank: int, _: int, folder: str) -> int:
    """Passes that are recorded, with the recorder paused, and after it was closed."""
    model = branches(torch.float32)
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1)
    with pyddpdiag.GradientReducer(model.parameters(), bucket_cap_mb=0.002, recorder=recorder) as reducer:

        def one(step: int) -> None:
            model.zero_grad()
            _backward(model, rank, step)
            reducer.all_reduce()

        one(0)
        recorder.pause()
        one(1)
        recorder.resume()
        one(2)
        recorder.close()
        one(3)
        return len(reducer._buckets)


def test_a_recorder_may_pause_and_close(tmp_path: Path) -> None:
    for rank, buckets in enumerate(run_ranks(_paused_and_closed, 2, tmp_path, str(tmp_path / "trace"))):
        assert len(complete(open_run(tmp_path / "trace").ranks[rank], Kind.BUCKET)) == 2 * buckets


def test_a_reducer_without_a_recorder_records_nothing(trained: Trained) -> None:
    for rank in open_run(trained[0] / "beside").ranks:
        assert len(rank.of_kind(Kind.BUCKET)) == 0
