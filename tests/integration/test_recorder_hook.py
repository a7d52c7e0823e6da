"""`recorder.hook(...)`: the options of `attach`, for programs that register a hook by themselves."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.hooked import complete, in_order, train
from support.models import branches, gradient_bytes
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import RecorderClosedError, UsageError
from pyddpdiag.trace.layout import BucketTime, Flag, Kind
from pyddpdiag.trace.run import open_run

STEPS = 3
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {},
    "bf16": {"compress": "bf16"},
    "fp16": {"compress": "fp16"},
    "feedback": {"compress": "bf16", "error_feedback": True},
}


def _trained(rank: int, recorder: pyddpdiag.Recorder, way: str, options: dict[str, Any]) -> list[bytes]:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    if way == "attach":
        recorder.attach(ddp, **options)
    else:
        state = {"none": None, "recorder": recorder, "group": dist.group.WORLD}[way]
        ddp.register_comm_hook(state, recorder.hook(**options))
    train(ddp, rank, STEPS)
    return gradient_bytes(ddp)


def _every_way(rank: int, _: int, folder: str) -> dict[str, list[bool]]:
    same = {}
    for name, options in OPTIONS.items():
        with pyddpdiag.Recorder(f"{folder}/{name}", capacity_mb=1) as recorder:
            expected = _trained(rank, recorder, "attach", options)
            same[name] = [
                _trained(rank, recorder, way, options) == expected for way in ("none", "recorder", "group")
            ]
    return same


def test_the_bits_of_attach_with_every_option_and_state(tmp_path: Path) -> None:
    for same in run_ranks(_every_way, 2, tmp_path, str(tmp_path)):
        assert same == dict.fromkeys(OPTIONS, [True] * 3)
    for name in OPTIONS:
        for rank in open_run(tmp_path / name).ranks:
            buckets = complete(rank, Kind.BUCKET)
            assert set(buckets["module"].tolist()) == {0, 1, 2, 3}
            assert ((buckets["flags"] & Flag.COMPRESSED) > 0).all() == (name != "exact")
            # Only where `attach` has given DDP a native hook.
            hooked = buckets[(buckets["module"] == 0) & ((buckets["flags"] & Flag.COMPRESSED) > 0)]
            in_order(hooked, BucketTime.ENDED, BucketTime.CONSUMED)


def _misused(rank: int, _: int, folder: str) -> list[str]:
    said = []
    recorder = pyddpdiag.Recorder(folder, capacity_mb=1)
    for options in ({"compress": "int8"}, {"error_feedback": True}):
        with pytest.raises(UsageError) as caught:
            recorder.hook(**options)
        said.append(str(caught.value))
    ddp = DistributedDataParallel(branches(torch.float32))
    ddp.register_comm_hook("a name", recorder.hook())
    with pytest.raises(UsageError) as caught:
        train(ddp, rank, 1)
    said.append(str(caught.value))
    late = DistributedDataParallel(branches(torch.float32))
    late.register_comm_hook(None, recorder.hook())
    recorder.close()
    with pytest.raises(RecorderClosedError) as closed:
        train(late, rank, 1)
    said.append(str(closed.value))
    with pytest.raises(RecorderClosedError):
        recorder.hook()
    return said


def test_misuse_is_said(tmp_path: Path) -> None:
    for said in run_ranks(_misused, 1, tmp_path, str(tmp_path / "trace")):
        for words, expected in zip(
            said, ("'int8'", "error_feedback needs", "not str", "is closed"), strict=True
        ):
            assert expected in words
