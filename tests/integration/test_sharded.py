"""FSDP and replicate() over Gloo: no buckets of DDP's, and the recorder says what it can."""

import io
import time
from pathlib import Path

import torch
import torch.distributed as dist
from support.hooked import complete
from support.models import batch, branches
from support.ranks import run_ranks
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pyddpdiag
from pyddpdiag.pipeline import load_report, print_report
from pyddpdiag.trace.layout import CollectiveTime, Kind
from pyddpdiag.trace.run import open_run

STEPS = 4


def _job(rank: int, world_size: int, folder: str) -> dict[str, int]:
    """Trains both ways; how many operations the group began for each."""
    group = dist.group.WORLD
    assert group is not None
    began = {}
    for name in ("fsdp", "replicate"):
        model: torch.nn.Module = branches(torch.float32)
        if name == "fsdp":
            fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
        else:
            replicate(model)
        with pyddpdiag.Recorder(Path(folder, name), capacity_mb=1) as recorder:
            before = group._get_sequence_number_for_group()
            for step in recorder.steps(range(STEPS)):
                model(batch(rank, step, torch.float32)).square().mean().backward()
            began[name] = int(group._get_sequence_number_for_group() - before)
    return began


def _late_job(rank: int, world_size: int, folder: str) -> None:
    model: torch.nn.Module = branches(torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for step in recorder.steps(range(40)):
            if rank == 1:
                time.sleep(0.04)
            model(batch(rank, step, torch.float32)).square().mean().backward()


def test_the_rank_that_others_wait_for_is_named(tmp_path: Path) -> None:
    run_ranks(_late_job, 2, tmp_path, str(tmp_path))
    first = load_report(tmp_path).verdict.findings[0]
    assert (first.kind, first.rank) == ("late_rank", 1)


def test_every_collective_is_recorded_by_name(tmp_path: Path) -> None:
    began = run_ranks(_job, 2, tmp_path, str(tmp_path))
    for name in ("fsdp", "replicate"):
        for rank in open_run(tmp_path / name).ranks:
            records = complete(rank, Kind.COLLECTIVE)
            assert (records["times"][:, CollectiveTime.ENDED] > 0).all()
            # A replicate() that makes a DDP module brings its buckets with it; they are collectives of the group here.
            assert len(records) == began[rank.rank][name]
            names = {record.decode() for record in records["name"].tolist()}
            assert set(records["step"].tolist()) == set(range(STEPS))
        report = load_report(tmp_path / name)
        assert report.buckets == ()
        assert [rank.steps for rank in report.ranks] == [STEPS] * 2
        out = io.StringIO()
        print_report(tmp_path / name, file=out, every_rank=True)
        assert all(name in out.getvalue() for name in names)
