"""A module that leaves its recorder, and finds another: a notebook's cells that are run again."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from support.hooked import backward, complete
from support.models import branches, gradient_bytes
from support.ranks import ran_once
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import AlreadyAttachedError, UsageError
from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.run import open_run

Left = tuple[Path, list[dict[str, Any]]]


def _ddp() -> DistributedDataParallel:
    return DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)


def _mapped() -> list[str]:
    return [Path(m.path).parent.name for m in psutil.Process().memory_maps() if m.path.endswith(".ddptrace")]


def _said(act: Any, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def _job(rank: int, _: int, folder: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    builtin, ddp = _ddp(), _ddp()
    builtin.register_comm_hook(None, allreduce_hook)

    def step(number: int) -> bool:
        for module in (builtin, ddp):
            module.zero_grad()
            backward(module, rank, number)
        return gradient_bytes(builtin) == gradient_bytes(ddp)

    def opened(name: str) -> pyddpdiag.Recorder:
        return pyddpdiag.Recorder(Path(folder, name), capacity_mb=1, parameter_interval=1)

    recorder = opened("first")
    seen["not attached"] = _said(lambda: recorder.detach(ddp), UsageError)
    recorder.attach(ddp)
    same = [step(0), step(1)]
    recorder.detach(ddp)
    same += [step(2), step(3)]
    seen["twice"] = _said(lambda: recorder.detach(ddp), UsageError)
    recorder.close()
    same.append(step(4))
    del recorder
    gc.collect()
    seen["mapped"] = _mapped()
    # The cell once more: its name is another recorder's now.
    recorder = opened("second")
    recorder.attach(ddp)
    same.append(step(5))
    with opened("third") as third:
        seen["taken"] = _said(lambda: third.attach(ddp), AlreadyAttachedError)
        third.detach(ddp)
        third.attach(ddp)
        same.append(step(6))
    # Its hook would raise now, and DDP never ends a pass whose hook raised.
    with opened("fourth") as fourth:
        fourth.attach(ddp)
        same += [step(7), step(8)]
    fourth.detach(ddp)
    same.append(step(9))
    recorder.close()
    seen["same"] = same
    return seen


left = ran_once(_job, 2)


def test_a_detached_module_trains_as_with_the_builtin_hook(left: Left) -> None:
    for seen in left[1]:
        assert seen["same"] == [True] * 10
        assert seen["mapped"] == []


def test_each_recorder_has_its_own_passes(left: Left) -> None:
    for name, passes in {"first": 2, "second": 1, "third": 1, "fourth": 2}.items():
        for rank in open_run(left[0] / name).ranks:
            backward_passes = complete(rank, Kind.BACKWARD)
            assert len(backward_passes) == passes
            # Its marks of the forward pass came with it, and no one else's.
            assert (backward_passes["times"][:, BackwardTime.FORWARD_BEGIN] > 0).all()
            parameters = rank.of_kind(Kind.PARAMETER)
            assert len(parameters) == passes * len(rank.sidecar.modules[0].parameters)
            assert complete(rank, Kind.BUCKET)["sequence"].tolist() == list(
                range(len(rank.of_kind(Kind.BUCKET)))
            )


def test_misuse_says_which_recorder_has_it(left: Left) -> None:
    for seen in left[1]:
        assert (
            "attached to no recorder" in seen["not attached"] and "attach(ddp) first" in seen["not attached"]
        )
        assert "attached to no recorder" in seen["twice"]
        assert "second" in seen["taken"] and "recorder.detach(ddp)" in seen["taken"]
