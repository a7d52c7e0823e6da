"""A recorder's life: paused on one rank, with uneven inputs, several at once, left to the collector."""

import copy
import gc
import io
import pickle
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from support.hooked import WAYS, backward, complete, in_order, register, train
from support.models import batch, branches, gradient_bytes
from support.ranks import ran_once, run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import pyddpdiag
from pyddpdiag.errors import UsageError
from pyddpdiag.pipeline import load_report
from pyddpdiag.record.copied import CopiedRecorder
from pyddpdiag.trace.layout import BucketTime, CollectiveTime, Flag, Kind
from pyddpdiag.trace.run import open_run

RANKS = 4
STEPS = 8
PAUSED_RANK = 2


def _ddp() -> DistributedDataParallel:
    return DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)


def _pause(rank: int, folder: Path, way: str) -> bool:
    """Rank 2 pauses in step 3 and resumes in step 6."""
    plain, hooked = _ddp(), _ddp()
    same = True
    with pyddpdiag.Recorder(folder / "pause") as recorder:
        register(recorder, hooked, way)
        for step in range(STEPS):
            if rank == PAUSED_RANK and step == 3:
                recorder.pause()
            if rank == PAUSED_RANK and step == 6:
                recorder.resume()
            for ddp in (plain, hooked):
                ddp.zero_grad()
                backward(ddp, rank, step)
            same = same and gradient_bytes(plain) == gradient_bytes(hooked)
    return same


def _pause_within(rank: int, folder: Path, way: str) -> bool:
    """Each gradient of one layer turns recording off and on, so that a pass is recorded in part."""
    plain, hooked = _ddp(), _ddp()
    with pyddpdiag.Recorder(folder / "pause within") as recorder:
        register(recorder, hooked, way)
        if rank == PAUSED_RANK:
            parameters = dict(hooked.module.named_parameters())
            parameters["right.weight"].register_hook(lambda _: recorder.pause())
            parameters["stem.weight"].register_hook(lambda _: recorder.resume())
        for ddp in (plain, hooked):
            train(ddp, rank, STEPS)
    return gradient_bytes(plain) == gradient_bytes(hooked)


def _pause_job(rank: int, _: int, folder: str) -> dict[tuple[str, str], bool]:
    seen = {}
    for way in WAYS:
        seen[way, "pause"] = _pause(rank, Path(folder, way), way)
        seen[way, "pause within"] = _pause_within(rank, Path(folder, way), way)
    return seen


paused = ran_once(_pause_job, RANKS)


@pytest.mark.parametrize("way", WAYS)
def test_pausing_one_rank(paused: tuple[Path, list[dict[tuple[str, str], bool]]], way: str) -> None:
    folder, answers = paused
    assert [seen[way, "pause"] for seen in answers] == [True] * RANKS
    run = open_run(folder / way / "pause")
    whole = complete(run.ranks[0], Kind.BUCKET)
    per_step = int((whole["step"] == 1).sum())
    for rank in run.ranks:
        buckets = complete(rank, Kind.BUCKET)
        expected = whole
        if rank.rank == PAUSED_RANK:
            expected = whole[(whole["step"] < 3) | (whole["step"] >= 6)]
            assert len(expected) == len(whole) - 3 * per_step
        # The numbers go on under the pause, so the buckets after it are paired with the right ones.
        for field in ("sequence", "step", "reference", "bytes", "group"):
            assert buckets[field].tolist() == expected[field].tolist(), (rank.rank, field)
    report = load_report(run.folder)
    assert report.mismatches == ()
    assert [(gap.rank, gap.before, gap.between, gap.after) for gap in report.gaps] == [
        (PAUSED_RANK, 0, 3 * per_step, 0)
    ]


@pytest.mark.parametrize("way", WAYS)
def test_pausing_within_a_pass(paused: tuple[Path, list[dict[tuple[str, str], bool]]], way: str) -> None:
    folder, answers = paused
    assert [seen[way, "pause within"] for seen in answers] == [True] * RANKS
    run = open_run(folder / way / "pause within")
    whole = complete(run.ranks[0], Kind.BUCKET)
    buckets = complete(run.ranks[PAUSED_RANK], Kind.BUCKET)
    assert 0 < len(buckets) < len(whole)
    passes = dict(zip(whole["sequence"].tolist(), whole["reference"].tolist(), strict=True))
    assert [passes[number] for number in buckets["sequence"].tolist()] == buckets["reference"].tolist()
    in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)


def _join_job(rank: int, _: int, folder: str) -> dict[str, bool]:
    return {way: _join_way(rank, Path(folder), way) for way in WAYS}


def _join_way(rank: int, folder: Path, way: str) -> bool:
    """Rank r has 3 + r batches."""
    results = []
    with pyddpdiag.Recorder(folder / way) as recorder:
        for hooked in (False, True):
            ddp = _ddp()
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            if hooked:
                register(recorder, ddp, way)
            with ddp.join():
                for step in recorder.steps(range(3 + rank)) if hooked else range(3 + rank):
                    optimizer.zero_grad()
                    backward(ddp, rank, step)
                    optimizer.step()
            results.append([p.detach().clone() for p in ddp.parameters()])
    return all(torch.equal(*pair) for pair in zip(*results, strict=True))


def _mapped(recorders: list[pyddpdiag.Recorder]) -> list[str] | None:
    """The folders with a file that this process has mapped; None where the system does not say."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    text = maps.read_text(encoding="utf-8", errors="replace")
    return [recorder.folder.name for recorder in recorders if f"{recorder.folder}/" in text]


def _alone_job(rank: int, _: int, folder: str) -> dict[str, Any]:
    root = Path(folder)
    seen: dict[str, Any] = {}
    try:
        with pyddpdiag.Recorder(root / "raised") as recorder:
            ddp = _ddp()
            recorder.attach(ddp)
            for step in recorder.steps(range(3)):
                backward(ddp, rank, step)
                if step == 1:
                    raise KeyError("in the middle")
    except KeyError as error:
        seen["raised"] = (str(error), recorder.closed)

    recorders = [pyddpdiag.Recorder(root / f"three {number}", capacity_mb=1) for number in range(3)]
    modules = [_ddp() for _ in recorders]
    for number, (recorder, ddp) in enumerate(zip(recorders, modules, strict=True)):
        register(recorder, ddp, WAYS[number % 2])
    for step in range(STEPS):
        total = sum(ddp(batch(rank, step, torch.float32)).square().mean() for ddp in modules)
        total.backward()  # type: ignore[union-attr]
        if step == 3:
            recorders[1].pause()
    seen["mapped"] = [_mapped(recorders)]
    for recorder in recorders:
        recorder.close()
    # While hooks, modules and recorders live on.
    seen["mapped"].append(_mapped(recorders))
    with pyddpdiag.Recorder(root / "removed", capacity_mb=1) as recorder:
        dist.barrier()
    # With the lines of the script, if a busy machine gave time for a look.
    for file in recorder.path.parent.glob(f"{recorder.path.stem}.*"):
        file.unlink()

    # Never closed. The DDP module keeps recording as long as it lives; then all of it goes.
    for way in WAYS:
        ddp = _ddp()
        train(ddp, rank, 2)
        recorder = pyddpdiag.Recorder(root / f"left {way}", capacity_mb=1)
        # Not before its first passes, as one may do it in a session.
        register(recorder, ddp, way)
        left, core = weakref.ref(recorder), weakref.ref(ddp)
        del recorder
        gc.collect()
        train(ddp, rank, 3)
        del ddp
        gc.collect()
        seen[f"left {way}"] = (left() is None, core() is None)
    # A recorder without any hook, let go while its collective may still run.
    for number in range(20):
        recorder = pyddpdiag.Recorder(root / f"dropped {number}", capacity_mb=0.0625)
        work = dist.broadcast(torch.ones(1000), 0, async_op=True)
        del recorder
        work.wait()
    with pyddpdiag.Recorder(root / "after", capacity_mb=1):
        dist.barrier()
    return seen


alone = ran_once(_alone_job, 2)


def test_uneven_inputs(tmp_path: Path) -> None:
    assert run_ranks(_join_job, 2, tmp_path, str(tmp_path)) == [{"native": True, "timed": True}] * 2
    for way in WAYS:
        run = open_run(tmp_path / way)
        buckets = [complete(rank, Kind.BUCKET) for rank in run.ranks]
        # Rank 0 goes on reducing for rank 1 after its own last batch, so both made as many.
        for field in ("sequence", "reference", "bytes"):
            assert buckets[0][field].tolist() == buckets[1][field].tolist(), field
        assert int(buckets[1]["step"].max()) == 3
        for one in buckets:
            in_order(one, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
        assert load_report(tmp_path / way).mismatches == ()


def test_an_exception_in_the_with_block(alone: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, answers = alone
    assert [seen["raised"] for seen in answers] == [("'in the middle'", True)] * 2
    run = open_run(folder / "raised")
    assert run.warnings == ()
    for rank in run.ranks:
        steps = complete(rank, Kind.STEP)
        assert steps["step"].tolist() == [0, 1]
        assert (steps["times"][:, :3] > 0).all()
        assert set(complete(rank, Kind.BUCKET)["step"].tolist()) == {0, 1}


def test_a_closed_recorder_gives_its_file_back(alone: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, answers = alone
    names = [f"three {number}" for number in range(3)]
    for seen in answers:
        assert seen["mapped"] in ([names, []], [None, None])
    # On Windows no rank could remove a file that it has mapped.
    (folder / "removed").rmdir()


def test_three_recorders_at_once(alone: tuple[Path, list[dict[str, Any]]]) -> None:
    runs = [open_run(alone[0] / f"three {number}") for number in range(3)]
    assert len({run.run_id for run in runs}) == 3
    for number, run in enumerate(runs):
        for rank in run.ranks:
            buckets = complete(rank, Kind.BUCKET)
            # Only its own module's.
            assert set(buckets["module"].tolist()) == {0}
            assert len(rank.sidecar.modules) == 1
            steps = list(range(4 if number == 1 else STEPS))
            assert sorted(set(buckets["step"].tolist())) == steps
            assert buckets["sequence"].tolist() == list(range(len(buckets)))
            native = (buckets["flags"] & Flag.NATIVE) > 0
            assert native.all() if number % 2 == 0 else not native.any()
            in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
    # What belongs to none of them is seen by all, as long as they listen.
    seen = [Counter(run.ranks[0].of_kind(Kind.COLLECTIVE)["name"].tolist()) for run in runs]
    assert seen[0] == seen[2]
    assert seen[1]
    assert seen[1] < seen[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_recorder_that_was_never_closed(alone: tuple[Path, list[dict[str, Any]]], way: str) -> None:
    folder, answers = alone
    assert [seen[f"left {way}"] for seen in answers] == [(True, True)] * 2
    run = open_run(folder / f"left {way}")
    # The process came to its end, which says as much.
    assert not run.warnings
    for rank in run.ranks:
        assert (rank.header.closed, rank.header.ended) == (False, "orderly")
        buckets = complete(rank, Kind.BUCKET)
        assert sorted(set(buckets["step"].tolist())) == [0, 1, 2]
        assert buckets["sequence"].tolist() == list(range(len(buckets)))
        assert len(rank.sidecar.layouts) == len(set(buckets["reference"].tolist()))


def test_recorders_dropped_in_the_middle_of_a_collective(alone: tuple[Path, list[dict[str, Any]]]) -> None:
    for number in range(20):
        for rank in open_run(alone[0] / f"dropped {number}").ranks:
            # Torch keeps an operation, and it keeps the recorder, as long as anybody has it.
            records = complete(rank, Kind.COLLECTIVE)
            assert set(records["name"].tolist()) <= {b"gloo:broadcast", b"gloo:barrier"}
            in_order(records, CollectiveTime.STARTED, CollectiveTime.ENDED)
    after = open_run(alone[0] / "after").ranks[0]
    assert b"gloo:barrier" in np.asarray(after.of_kind(Kind.COLLECTIVE)["name"]).tolist()


def _close_and_drop(rank: int, _: int, folder: str) -> list[str]:
    """The traces that are still mapped when the recorders and all that they recorded are gone."""
    for way in WAYS:
        ddp = _ddp()
        with pyddpdiag.Recorder(Path(folder, way), capacity_mb=1) as recorder:
            register(recorder, ddp, way)
            train(ddp, rank, 3)
        del ddp, recorder
        gc.collect()
    return [m.path for m in psutil.Process().memory_maps() if m.path.endswith(".ddptrace")]


def test_a_dropped_recorder_gives_its_memory_back(tmp_path: Path) -> None:
    assert run_ranks(_close_and_drop, 2, tmp_path, str(tmp_path / "dropped")) == [[], []]


def _dropped(rank: int, _: int, folder: str, way: str) -> tuple[int, int]:
    """Modules that train and are dropped while the recorder is open; how many of their tensors are left."""
    left: list[weakref.ref[torch.Tensor]] = []
    modules = 4
    with pyddpdiag.Recorder(folder) as recorder:
        for _ in range(modules):
            ddp = _ddp()
            register(recorder, ddp, way)
            train(ddp, rank, 2)
            for parameter in ddp.parameters():
                assert parameter.grad is not None
                left += [weakref.ref(parameter), weakref.ref(parameter.grad)]
            del ddp, parameter
            gc.collect()
        alive = sum(reference() is not None for reference in left)
    sidecar = open_run(Path(folder)).ranks[rank].sidecar
    assert [module.parameters[0] for module in sidecar.modules.values()] == ["stem.weight"] * modules
    return alive, len(left)


@pytest.mark.parametrize("way", WAYS)
def test_a_recorder_keeps_no_module_alive(tmp_path: Path, way: str) -> None:
    assert run_ranks(_dropped, 2, tmp_path, str(tmp_path / "dropped"), way) == [(0, 64)] * 2


def _saved(ddp: DistributedDataParallel) -> DistributedDataParallel:
    """What torch.save() and torch.load() make of it."""
    file = io.BytesIO()
    torch.save(ddp, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert isinstance(loaded, DistributedDataParallel)
    return loaded


def _copy(rank: int, _: int, folder: str) -> dict[str, bool]:
    """Copies of a recorded module train, by each way to record; none is in the trace."""
    same = {}
    for way in (*WAYS, "bound", "foreign"):
        ddp = _ddp()
        with pyddpdiag.Recorder(Path(folder, way), capacity_mb=1) as recorder:
            hooks = {"bound": recorder.hook(), "foreign": pyddpdiag.timed(allreduce_hook, recorder)}
            if way in WAYS:
                register(recorder, ddp, way)
            else:
                ddp.register_comm_hook(None, hooks[way])
            backward(ddp, rank, 0)
            copies = [copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp)), _saved(ddp)]
            copies += [AveragedModel(ddp).module]
            for one in copies:
                one.zero_grad()
                backward(one, rank, 0)
            same[way] = all(gradient_bytes(one) == gradient_bytes(ddp) for one in copies)
            backward(ddp, rank, 1)
        copied = copy.copy(recorder)
        assert isinstance(copied, CopiedRecorder)
        assert str(recorder.path) in repr(copied)
        hooked = _ddp()
        if way in WAYS:
            hooked.register_comm_hook(copied, pyddpdiag.timed_allreduce)
        else:
            hooked.register_comm_hook(None, copy.deepcopy(hooks[way]))
        with pytest.raises(UsageError, match="only a copy of the recorder"):
            backward(hooked, rank, 2)
    return same


def test_copies_of_a_recorded_module_are_not_recorded(tmp_path: Path) -> None:
    for same in run_ranks(_copy, 2, tmp_path, str(tmp_path)):
        assert all(same.values()), same
        for way in same:
            for trace in open_run(tmp_path / way).ranks:
                assert len(complete(trace, Kind.BACKWARD)) == 2, way
