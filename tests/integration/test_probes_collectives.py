"""The worker probe: other collectives by name, and starts seen whatever else listens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.hooked import WAYS, backward, complete, in_order, register, times, train
from support.models import branches
from support.ranks import ran_once, run_ranks
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import BucketTime, CollectiveTime, Kind
from pyddpdiag.trace.run import open_run

ELSEWHERE = ("plain", "profiler", "dispatch mode", "profiler and dispatch mode")
# Calls, and the name that Gloo gives to each; every one is made REPEATS times.
REPEATS = 3
NAMES = {
    *("gloo:all_reduce", "gloo:broadcast", "gloo:all_gather", "gloo:reduce", "gloo:gather"),
    *("gloo:scatter", "gloo:all_to_all", "gloo:barrier"),
}


class Counting(TorchDispatchMode):
    """Python code within every operation, as tools that look into them use it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


def _call_all(rank: int, world_size: int) -> None:
    one = torch.ones(8)
    parts = [torch.zeros(8) for _ in range(world_size)]
    dist.all_reduce(one)
    dist.broadcast(one, 0)
    dist.all_gather(parts, one)
    dist.reduce(one, 1)
    dist.gather(one, parts if rank == 0 else None)
    dist.scatter(one, parts if rank == 0 else None)
    dist.all_to_all_single(torch.zeros(8), torch.ones(8))
    dist.barrier()


def _collectives_job(rank: int, world_size: int, folder: str) -> dict[str, Any]:
    # Without readings of connections, which take tickets at any time.
    with pyddpdiag.Recorder(folder, capacity_mb=1, sample_connections=False) as recorder:
        for _ in range(REPEATS):
            _call_all(rank, world_size)
        recorder.pause()
        _call_all(rank, world_size)
        recorder.resume()
        dist.broadcast(torch.ones(1), 0)
        after = recorder.counters()["tickets"]
    _call_all(rank, world_size)
    return {
        "tickets": after,
        "after close": recorder.counters()["tickets"],
        "thread": threading.get_native_id(),
    }


collectives = ran_once(_collectives_job, 2)


def test_other_collectives_by_name(collectives: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, answers = collectives
    for rank, answer in zip(open_run(folder).ranks, answers, strict=True):
        records = complete(rank, Kind.COLLECTIVE)
        in_order(records, CollectiveTime.STARTED, CollectiveTime.ENDED)
        names = records["name"].astype(str)
        assert set(names.tolist()) == NAMES
        for name in NAMES:
            mine = records[names == name]
            last = [REPEATS + 1] if name == "gloo:broadcast" else []
            # Those of the pause are in no trace.
            assert len(mine) == REPEATS + len(last), name
            assert mine["sequence"].tolist()[:REPEATS] == list(range(REPEATS)), name
            assert len(set(mine["reference"].tolist())) == 1
        # On Gloo's threads, not on the one that called.
        assert answer["thread"] not in records["thread"].tolist()
        assert answer["after close"] == answer["tickets"]


def test_collectives_are_reported_by_name(collectives: tuple[Path, list[dict[str, Any]]]) -> None:
    from pyddpdiag.pipeline import load_report

    counts = {(row.rank, row.name): row.count for row in load_report(collectives[0]).other_collectives}
    expected = {(rank, name): REPEATS + (name == "gloo:broadcast") for rank in range(2) for name in NAMES}
    assert counts == expected


def _groups_job(rank: int, _: int, folder: str) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    # Several buckets per step: each of a group's workers carries one now and then.
    group = groups[rank // 2]
    ddp = DistributedDataParallel(branches(torch.float32), process_group=group, bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(30)):
            backward(ddp, rank, step)
            dist.all_reduce(torch.ones(64 * (1 + rank // 2)), group=group)
            dist.all_reduce(torch.ones(8))


def test_a_collective_names_its_group_beside_buckets(tmp_path: Path) -> None:
    run_ranks(_groups_job, 4, tmp_path, str(tmp_path))
    run = open_run(tmp_path)
    names = {group.name: group.ranks for group in run.groups().values()}
    rows = load_report(tmp_path).other_collectives
    counts = {(row.rank, row.group): row.count for row in rows if row.name == "gloo:all_reduce"}
    (world,) = [name for name, ranks in names.items() if len(ranks) == 4]
    of_pairs = {rank: name for name, ranks in names.items() if len(ranks) == 2 for rank in ranks}
    assert set(of_pairs) == {0, 1, 2, 3} and of_pairs[0] != of_pairs[2]
    for rank, name in of_pairs.items():
        # Those of the group of all ranks are on workers that carry no buckets.
        assert (counts[rank, name], counts[rank, world]) == (30, 30)


def _start_job(rank: int, _: int, folder: str) -> dict[tuple[str, str], tuple[int, int]]:
    """For each way and listener: spans of gloo:all_reduce in the profile, operations in the dispatch mode."""
    seen = {}
    for way in WAYS:
        for elsewhere in ELSEWHERE:
            ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
            with pyddpdiag.Recorder(Path(folder, way, elsewhere), capacity_mb=1) as recorder:
                register(recorder, ddp, way)
                train(ddp, rank, 2)
                spans = operations = 0
                mode = Counting()
                profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
                if "profiler" in elsewhere:
                    profiler.start()
                if "mode" in elsewhere:
                    with mode:
                        backward(ddp, rank, 2)
                    operations = mode.seen
                else:
                    backward(ddp, rank, 2)
                if "profiler" in elsewhere:
                    profiler.stop()
                    spans = sum(event.name == "gloo:all_reduce" for event in profiler.events())
                # And back to nobody else.
                backward(ddp, rank, 3)
                seen[way, elsewhere] = (spans, operations)
    return seen


starts = ran_once(_start_job, 2)


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
@pytest.mark.parametrize("way", WAYS)
def test_starts_are_seen(
    starts: tuple[Path, list[dict[tuple[str, str], tuple[int, int]]]], way: str, elsewhere: str
) -> None:
    folder, answers = starts
    for rank, seen in zip(open_run(folder / way / elsewhere).ranks, answers, strict=True):
        buckets = complete(rank, Kind.BUCKET)
        in_order(buckets, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)
        per_step = [int((buckets["step"] == step).sum()) for step in range(4)]
        assert per_step[2] == per_step[3] > 1
        spans, operations = seen[way, elsewhere]
        # The profiler keeps its own view, whole.
        assert spans == (per_step[2] if "profiler" in elsewhere else 0)
        assert (operations > 0) == ("mode" in elsewhere)
        # A bucket's all-reduce is no "other collective" as well.
        assert "gloo:all_reduce" not in complete(rank, Kind.COLLECTIVE)["name"].astype(str).tolist()
        assert times(buckets, BucketTime.STARTED).min() > 0


PASSES = 20
# When a collective within the backward pass is begun for the first time, and over which group: what is heard of it.
# The probe is silent in most passes of a module in whose first ones there was nothing to hear; a collective that comes
# later is missed once, in the group's sequence number.
WITHIN = {("from the first pass", "world"): 20, ("from the first pass", "other"): 20, ("late", "world"): 14}


def _within_job(rank: int, _: int, folder: str, way: str) -> None:
    other = dist.new_group()
    for first, group in WITHIN:
        torch.manual_seed(0)
        module = branches(torch.float32)
        ddp = DistributedDataParallel(module, bucket_cap_mb=0.0005)
        due = [first != "late"]

        def gather(
            _: torch.Tensor, due: list[bool] = due, over: Any = other if group == "other" else None
        ) -> None:
            if due[0]:
                dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.ones(1), group=over)

        # The last gradient: buckets are on their way by then.
        module.stem.weight.register_hook(gather)
        with pyddpdiag.Recorder(Path(folder, first, group), capacity_mb=1) as recorder:
            register(recorder, ddp, way)
            for step in range(PASSES):
                due[0] = due[0] or step == 5
                backward(ddp, rank, step)


@pytest.mark.parametrize("way", WAYS)
def test_collectives_within_the_backward_pass_are_heard(tmp_path: Path, way: str) -> None:
    run_ranks(_within_job, 2, tmp_path, str(tmp_path), way)
    for (first, group), expected in WITHIN.items():
        for rank in open_run(tmp_path / first / group).ranks:
            records = complete(rank, Kind.COLLECTIVE)
            heard = records["name"].astype(str).tolist().count("gloo:all_gather")
            assert heard == expected, (first, group)
            buckets = complete(rank, Kind.BUCKET)
            assert len(buckets) >= 2 * PASSES
            in_order(buckets, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)


def _different_job(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32))
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(6)):
            backward(ddp, rank, step)
            # The same number of bytes: Gloo adds them up without a word.
            wrong = rank == 1 and step == 4
            dist.all_reduce(torch.ones(4, dtype=torch.float64) if wrong else torch.ones(8))


def test_ranks_that_put_in_different_types_are_reported(tmp_path: Path) -> None:
    run_ranks(_different_job, 2, tmp_path, str(tmp_path))
    report = load_report(tmp_path)
    (found,) = [one for one in report.verdict.findings if one.kind == "mismatched_all_reduce"]
    assert (found.since_step, found.evidence["operation"]) == (4, "gloo:all_reduce")
    (mismatch,) = report.mismatches
    assert mismatch.values == {0: "float32", 1: "float64"}
    for trace in open_run(tmp_path).ranks:
        records = complete(trace, Kind.COLLECTIVE)
        mine = records[records["name"] == b"gloo:all_reduce"]
        assert mine["bytes"].tolist() == [32] * 6
        assert mine["step"].tolist() == list(range(6))
        assert (mine["times"][:, CollectiveTime.FINGERPRINT] != 0).all()
        # Only the sum tells: from the call in question on.
    sums = [
        [int(x) for x in trace.of_kind(Kind.COLLECTIVE)["times"][:, CollectiveTime.FINGERPRINT]]
        for trace in open_run(tmp_path).ranks
    ]
    assert [a == b for a, b in zip(*sums, strict=True)][-6:] == [True] * 4 + [False] * 2


def _failing_job(rank: int, _: int, folder: str) -> str:
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for _step in recorder.steps(range(2)):
            dist.all_reduce(torch.ones(8))
        if rank == 0:
            try:
                dist.broadcast(torch.ones(8), 1)
            except RuntimeError as error:
                return str(error)
    return ""


def test_a_collective_that_fails_is_in_the_trace_with_its_error(tmp_path: Path) -> None:
    """Rank 1 never takes part; it has ended, or the group's time is over."""
    text, _ = run_ranks(_failing_job, 2, tmp_path, str(tmp_path), group_timeout_s=5)
    assert text
    report = load_report(tmp_path)
    (error,) = report.errors
    assert (error.rank, error.kind, error.what) == (0, "collective", "gloo:broadcast")
    assert error.text and error.text.splitlines()[0][:40] in text
    assert report.verdict.status == "findings"
    assert "operation_failed" in [finding.kind for finding in report.verdict.findings]
