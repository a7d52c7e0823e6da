"""recorder.steps(): data wait and steps are marked, however the loop ends."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from support.hooked import WAYS, backward, complete, in_order, register, times
from support.models import branches
from support.ranks import ran_once, run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import RecorderClosedError
from pyddpdiag.trace.layout import BackwardTime, BucketTime, Flag, Kind, Records, StepTime
from pyddpdiag.trace.run import open_run

Alone = tuple[Path, dict[str, object]]

STEPS = 4
SLEEP_S = 0.03


class SlowLoader:
    """A loader with a length whose batch number `slow` takes its time."""

    def __init__(self, batches: int, slow: int = -1) -> None:
        self._batches, self._slow = batches, slow

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[int]:
        for step in range(self._batches):
            if step == self._slow:
                time.sleep(SLEEP_S)
            yield step


def _train_job(rank: int, _: int, folder: str) -> None:
    for way in WAYS:
        ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
        with pyddpdiag.Recorder(Path(folder, way), parameter_interval=1) as recorder:
            register(recorder, ddp, way)
            # Two epochs, each step of two backward passes of which only the second reduces.
            for epoch in range(2):
                for step in recorder.steps(SlowLoader(STEPS, slow=2)):
                    for part in range(2):
                        with contextlib.nullcontext() if part else ddp.no_sync():
                            backward(ddp, rank, 100 * epoch + 2 * step + part)


def _loader_job(rank: int, _: int, folder: str) -> dict[str, object]:
    seen: dict[str, object] = {}

    def recorder(name: str) -> pyddpdiag.Recorder:
        return pyddpdiag.Recorder(Path(folder, name), capacity_mb=1)

    with recorder("raises") as one:

        def broken() -> Iterator[int]:
            yield 1
            raise ValueError("bad sample")

        try:
            for _batch in one.steps(broken()):
                pass
        except ValueError as error:
            seen["raises"] = str(error)
    with recorder("body raises") as one, contextlib.suppress(KeyError):
        for batch in one.steps([1, 2, 3]):
            if batch == 2:
                raise KeyError(batch)
    with recorder("break") as one:
        for batch in one.steps([1, 2, 3]):
            if batch == 2:
                break
        seen["after break"] = list(one.steps("xy"))
    with recorder("length") as one:
        seen["length"] = len(one.steps(SlowLoader(7)))
        try:
            len(one.steps(iter([1])))
        except TypeError as error:
            seen["no length"] = str(error)
        steps = one.steps([5, 6])
        seen["twice"] = list(steps) + list(steps)
        seen["empty"] = list(one.steps([]))
    with recorder("nested") as one:
        seen["nested"] = [(outer, list(one.steps("ab"))) for outer in one.steps([0, 1])]
    with recorder("left open") as one:
        waiting = iter(one.steps([1, 2, 3]))
        next(waiting)
        for _batch in one.steps([4, 5]):
            # The first loop is only given up now: it must not end a step of this one.
            waiting.close()  # type: ignore[attr-defined]
            time.sleep(SLEEP_S)
    with recorder("blocks") as one:
        for _ in range(2):
            with one.step():
                time.sleep(SLEEP_S)
        with contextlib.suppress(KeyError), one.step():
            raise KeyError("in a step")
    with recorder("marks") as one:
        for _ in range(4):
            one.mark_step()
            time.sleep(SLEEP_S)
    with recorder("marks and a loader") as one:
        one.mark_step()
        for _batch in one.steps("ab"):
            pass
        one.mark_step()
    try:
        one.mark_step()
    except RecorderClosedError as error:
        seen["closed"] = str(error)
    with recorder("paused") as one:
        for batch in one.steps(range(6)):
            if batch == 2:
                one.pause()
            elif batch == 4:
                one.resume()
    return seen


folder = ran_once(_train_job, 2, answers=False)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    path = tmp_path_factory.mktemp("alone")
    return path, run_ranks(_loader_job, 1, path, str(path))[0]


def steps_of(folder: Path, name: str) -> Records:
    return complete(open_run(folder / name).ranks[0], Kind.STEP)


def flags_of(steps: Records, flag: Flag) -> list[bool]:
    return ((steps["flags"] & flag) > 0).tolist()


def test_steps_without_a_loader(alone: Alone) -> None:
    folder, seen = alone
    for name, flags in (("blocks", [False] * 3), ("marks", [False] * 3 + [True])):
        steps = steps_of(folder, name)
        assert steps["step"].tolist() == list(range(len(flags)))
        # The step that the last mark began is none.
        assert flags_of(steps, Flag.NO_BATCH) == flags
        in_order(steps, StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END)
        lasted = times(steps, StepTime.END) - times(steps, StepTime.BEGIN)
        assert (lasted[[0, 1, -1][: 2 if name == "blocks" else 3]] >= SLEEP_S * 1e9).all()
    assert "is closed; cannot mark a step" in str(seen["closed"])


def test_marks_beside_a_loader_end_no_step_of_it(alone: Alone) -> None:
    steps = steps_of(alone[0], "marks and a loader")
    assert flags_of(steps, Flag.ABANDONED) == [True, False, False, False, False]
    assert flags_of(steps, Flag.NO_BATCH) == [False, False, False, True, True]


@pytest.mark.parametrize("way", WAYS)
def test_data_wait_and_steps(folder: Path, way: str) -> None:
    for rank in open_run(folder / way).ranks:
        steps = complete(rank, Kind.STEP)
        # Each epoch ends with a wait that brought no batch.
        assert steps["step"].tolist() == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]
        assert flags_of(steps, Flag.NO_BATCH) == [False, False, False, False, True] * 2
        real = steps[(steps["flags"] & Flag.NO_BATCH) == 0]
        in_order(real, StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END)
        waits = times(real, StepTime.BEGIN) - times(real, StepTime.WAIT_BEGIN)
        assert (waits[[2, 6]] >= SLEEP_S * 1e9).all()
        # A step begins where the one before it ended.
        assert (times(real, StepTime.WAIT_BEGIN)[1:] >= times(real, StepTime.END)[:-1]).all()


@pytest.mark.parametrize("way", WAYS)
def test_passes_and_buckets_lie_in_their_steps(folder: Path, way: str) -> None:
    for rank in open_run(folder / way).ranks:
        steps = rank.of_kind(Kind.STEP)
        steps = steps[(steps["flags"] & Flag.NO_BATCH) == 0]
        begin, end = times(steps, StepTime.BEGIN), times(steps, StepTime.END)
        for kind, first, last in (
            (Kind.BUCKET, BucketTime.READY, BucketTime.ENDED),
            (Kind.BACKWARD, BackwardTime.FINALIZE_BEGIN, BackwardTime.FINALIZE_END),
            *([(Kind.PARAMETER, 0, 0)] if way == "native" else []),
        ):
            records = complete(rank, kind)
            number = records["step"].astype(np.int64)
            assert sorted(set(number.tolist())) == list(range(2 * STEPS)), kind
            assert (times(records, first) >= begin[number]).all(), kind
            assert (times(records, last) <= end[number]).all(), kind
        assert complete(rank, Kind.BACKWARD)["step"].tolist() == list(range(2 * STEPS))


def test_a_loader_that_raises(alone: Alone) -> None:
    folder, seen = alone
    assert seen["raises"] == "bad sample"
    steps = steps_of(folder, "raises")
    assert flags_of(steps, Flag.NO_BATCH) == [False, True]
    assert steps["step"].tolist() == [0, 1]
    assert times(steps, StepTime.END).all()


@pytest.mark.parametrize(("name", "ended"), [("body raises", 2), ("break", 2)])
def test_a_loop_that_is_left_ends_its_step(alone: Alone, name: str, ended: int) -> None:
    folder, seen = alone
    steps = steps_of(folder, name)[:ended]
    assert steps["step"].tolist() == list(range(ended))
    assert not any(flags_of(steps, Flag.NO_BATCH))
    in_order(steps, StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END)
    # The next loop counts on.
    assert seen["after break"] == ["x", "y"]
    assert steps_of(folder, "break")["step"].tolist() == [0, 1, 2, 3, 4]


def test_length_and_iterating_again(alone: Alone) -> None:
    folder, seen = alone
    assert seen["length"] == 7
    assert "len()" in str(seen["no length"])
    assert seen["twice"] == [5, 6, 5, 6]
    assert seen["empty"] == []
    assert steps_of(folder, "length")["step"].tolist() == [0, 1, 2, 2, 3, 4, 4]


def test_loops_within_loops(alone: Alone) -> None:
    folder, seen = alone
    assert seen["nested"] == [(0, ["a", "b"]), (1, ["a", "b"])]
    steps = steps_of(folder, "nested")
    real = steps[(steps["flags"] & Flag.NO_BATCH) == 0]
    assert real["step"].tolist() == list(range(6))
    # The outer step ends where the inner loop begins.
    assert flags_of(real, Flag.ABANDONED) == [True, False, False, True, False, False]
    in_order(real, StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END)
    assert (times(real, StepTime.WAIT_BEGIN)[1:] >= times(real, StepTime.END)[:-1]).all()


def test_a_loop_left_open_does_not_end_the_next_ones_step(alone: Alone) -> None:
    steps = steps_of(alone[0], "left open")
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert flags_of(steps, Flag.ABANDONED) == [True, False, False, False]
    took = times(steps[1:3], StepTime.END) - times(steps[1:3], StepTime.BEGIN)
    assert (took >= SLEEP_S * 1e9).all()


def test_paused_steps_are_counted_and_not_written(alone: Alone) -> None:
    steps = steps_of(alone[0], "paused")
    assert steps["step"].tolist() == [0, 1, 2, 5, 6]
