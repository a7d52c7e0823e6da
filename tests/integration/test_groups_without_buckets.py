"""Collectives of process groups that reduce no buckets name their group all the same."""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.hooked import backward, complete
from support.models import batch, branches
from support.ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

CALLS = 12


def _sizes(trace: Any, names: dict[int, str]) -> Counter[tuple[str, int]]:
    """How many all-reduces each group had, by what was put in."""
    records = complete(trace, Kind.COLLECTIVE)
    mine = records[records["name"] == b"gloo:all_reduce"]
    return Counter(
        (names.get(group, "not known"), size)
        for group, size in zip(mine["group"].tolist(), mine["bytes"].tolist(), strict=True)
    )


def _two_job(rank: int, _: int, folder: str) -> dict[str, str]:
    world = dist.group.WORLD
    assert world is not None
    pair = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    # Gloo's workers that began before the recorder are found as well.
    for _call in range(4):
        dist.all_reduce(torch.ones(1), group=pair)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for step in recorder.steps(range(CALLS)):
            if step == 2:
                # A run that is killed has its names, too.
                groups = json.loads(recorder.path.with_suffix(".json").read_text())["groups"]
            # Both in flight: which worker began first says nothing.
            works = [
                dist.all_reduce(torch.ones(64), async_op=True),
                dist.all_reduce(torch.ones(8), group=pair, async_op=True),
            ]
            for work in works:
                work.wait()
            with torch.inference_mode():
                dist.all_reduce(torch.ones(16), group=pair)
    assert {pair.group_name, world.group_name} <= {group["name"] for group in groups}
    return {"pair": pair.group_name, "world": world.group_name}


def test_each_collective_names_its_group(tmp_path: Path) -> None:
    answers = run_ranks(_two_job, 4, tmp_path, str(tmp_path))
    run = open_run(tmp_path)
    names = {identity: group.name for identity, group in run.groups().items()}
    for trace, answer in zip(run.ranks, answers, strict=True):
        expected = {(answer["world"], 256): CALLS, (answer["pair"], 32): CALLS, (answer["pair"], 64): CALLS}
        assert _sizes(trace, names) == expected
    by_name = {group.name: group.ranks for group in run.groups().values()}
    assert by_name[answers[0]["pair"]] == (0, 1) and by_name[answers[3]["pair"]] == (2, 3)
    rows = load_report(tmp_path).other_collectives
    assert {(row.rank, row.group) for row in rows if row.name == "gloo:all_reduce"} == {
        (rank, group) for rank, answer in enumerate(answers) for group in answer.values()
    }
    # Paired over its own ranks, which is what the name is for.
    assert all(row.wait_ms is not None for row in rows)


def _late_job(rank: int, _: int, folder: str) -> str:
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        many = torch.ones(2)
        for step in recorder.steps(range(CALLS)):
            if step == 2:
                # More than the search looks at: it has ended when the next group comes.
                for _call in range(25_000):
                    many.add_(1)
                late = dist.new_group()
            if step > 2:
                for _call in range(8):
                    dist.all_reduce(torch.ones(8), group=late)
            dist.all_reduce(torch.ones(64))
    return str(late.group_name)


def test_a_group_that_comes_late_is_found(tmp_path: Path) -> None:
    answers = run_ranks(_late_job, 2, tmp_path, str(tmp_path))
    run = open_run(tmp_path)
    rows = load_report(tmp_path).other_collectives
    assert {row.group for row in rows if row.name == "gloo:all_reduce"} >= {answers[0]}
    for trace in run.ranks:
        names = {identity: group.name for identity, group in run.groups().items()}
        sizes = _sizes(trace, names)
        # The first of each of its two workers do not know yet; the report has it from those that follow.
        assert sizes[answers[0], 32] >= (CALLS - 3) * 8 - 6
        assert sizes["not known", 32] <= 6
        assert not any(size == 256 for group, size in sizes if group == answers[0])


def _sharded_job(rank: int, _: int, folder: str) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model: torch.nn.Module = branches(torch.float32)
    fully_shard(model, mesh=mesh)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for step in recorder.steps(range(CALLS)):
            if rank == 3:
                time.sleep(0.03)
            model(batch(rank, step, torch.float32)).square().mean().backward()


def test_hybrid_sharding_is_reported_by_group(tmp_path: Path) -> None:
    run_ranks(_sharded_job, 4, tmp_path, str(tmp_path))
    run = open_run(tmp_path)
    for trace in run.ranks:
        records = complete(trace, Kind.COLLECTIVE)
        assert (
            set(records["group"].tolist()) <= set(run.groups()) and len(set(records["group"].tolist())) == 2
        )
    sizes = sorted(len(group.ranks) for group in run.groups().values())
    assert sizes.count(2) == 4


def _bucket_job(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    peer: list[torch.Tensor] = []
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(CALLS)):
            backward(ddp, rank, step)
            # Point-to-point operations have their span on the thread that calls.
            peer.append(torch.ones(3))
            dist.send(peer[-1], 1) if rank == 0 else dist.recv(peer[-1], 0)
        other = dist.new_group()
        done = threading.Thread(target=lambda: dist.all_reduce(torch.ones(8), group=other))
        done.start()
        done.join()


def test_buckets_and_point_to_point_are_as_before(tmp_path: Path) -> None:
    run_ranks(_bucket_job, 2, tmp_path, str(tmp_path))
    run = open_run(tmp_path)
    for trace in run.ranks:
        buckets = complete(trace, Kind.BUCKET)
        assert len(set(buckets["group"].tolist())) == 1
        records = complete(trace, Kind.COLLECTIVE)
        single = records[(records["name"] == b"gloo:send") | (records["name"] == b"gloo:recv")]
        assert len(single) == CALLS
        assert set(single["group"].tolist()) == set(buckets["group"].tolist())
        other = records[(records["name"] == b"gloo:all_reduce") & (records["bytes"] == 32)]
        assert len(other) == 1 and other["group"].tolist()[0] not in buckets["group"].tolist()
