"""timed_allreduce with torch's own kinds of state: None and a ProcessGroup."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.hooked import complete, train
from support.models import branches, gradient_bytes
from support.ranks import run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

STEPS = 3


def _trained(rank: int, state: object, hook: Any = pyddpdiag.timed_allreduce) -> list[bytes]:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    ddp.register_comm_hook(state, hook)
    train(ddp, rank, STEPS)
    return gradient_bytes(ddp)


def _open_job(rank: int, world_size: int, folder: str) -> list[bool]:
    os.chdir(folder)
    own = dist.new_group(list(range(world_size)))
    expected = _trained(rank, None, allreduce_hook)
    same = []
    with pyddpdiag.Recorder("older"), pyddpdiag.Recorder("latest"):
        same.append(_trained(rank, None) == expected)
        same.append(_trained(rank, own) == expected)
    # The one that served None is closed: the next takes its place.
    with pyddpdiag.Recorder("next"):
        same.append(_trained(rank, None) == expected)
    return same


def test_an_open_recorder_is_used(tmp_path: Path) -> None:
    assert run_ranks(_open_job, 2, tmp_path, str(tmp_path)) == [[True] * 3] * 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["latest", "next", "older"]
    assert all(
        len(rank) == 0 or not len(rank.of_kind(Kind.BUCKET)) for rank in open_run(tmp_path / "older").ranks
    )
    for rank in open_run(tmp_path / "latest").ranks:
        buckets = complete(rank, Kind.BUCKET)
        assert set(buckets["module"].tolist()) == {0, 1}
        groups = [set(buckets["group"][buckets["module"] == module].tolist()) for module in (0, 1)]
        # The second module's buckets went through the group that was named, numbered on their own.
        assert groups[0].isdisjoint(groups[1])
        for group in groups:
            assert len(group) == 1
            mine = buckets["sequence"][buckets["group"] == group.pop()]
            assert mine.tolist() == list(range(len(mine)))
        assert all(rank.sidecar.groups[group].ranks == (0, 1) for group in set(buckets["group"].tolist()))
    for rank in open_run(tmp_path / "next").ranks:
        assert sorted(set(complete(rank, Kind.BUCKET)["step"].tolist())) == list(range(STEPS))


def _new_job(rank: int, _: int, folder: str) -> bool:
    place = Path(folder)
    os.chdir(place)
    expected = _trained(rank, None, allreduce_hook)
    same = _trained(rank, None) == expected
    # And once more: the recorder that was opened for the first serves the second.
    return same and _trained(rank, dist.group.WORLD) == expected


def test_without_a_recorder_a_new_folder_is_agreed_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_ranks(_new_job, 2, tmp_path, str(tmp_path), spawned=True) == [True, True]
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(folders) == 1
    # Rank 0 says so, once.
    said = [line for line in capfd.readouterr().err.splitlines() if "pyddpdiag records into" in line]
    assert len(said) == 1 and f"pyddpdiag report {folders[0].name}" in said[0]
    assert folders[0].name.startswith("ddptrace-")
    run = open_run(folders[0])
    # Closed normally when the processes ended.
    assert run.warnings == ()
    assert [rank.rank for rank in run.ranks] == [0, 1]
    for rank in run.ranks:
        buckets = complete(rank, Kind.BUCKET)
        assert set(buckets["module"].tolist()) == {0, 1}
        assert buckets["sequence"].tolist() == list(range(len(buckets)))
        assert rank.sidecar.modules[1].parameters[0] == "stem.weight"
    # The next run in the same working directory gets a folder of its own.
    run_ranks(_new_job, 1, tmp_path, str(tmp_path))
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2
