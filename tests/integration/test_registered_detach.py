"""A module whose hook the script registered itself leaves its recorder and finds another, as an attached one does."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.hooked import backward, complete
from support.models import branches, gradient_bytes
from support.ranks import ran_once, run_ranks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.errors import AlreadyAttachedError, UsageError
from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.run import open_run

Left = tuple[Path, list[dict[str, dict[str, Any]]]]

WAYS = ("recorder", "nothing", "group", "bound", "compressed")


def _register(ddp: DistributedDataParallel, recorder: pyddpdiag.Recorder, way: str) -> None:
    if way == "recorder":
        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    elif way == "nothing":
        ddp.register_comm_hook(None, pyddpdiag.timed_allreduce)
    elif way == "group":
        ddp.register_comm_hook(dist.new_group(), pyddpdiag.timed_allreduce)
    elif way == "bound":
        ddp.register_comm_hook(None, recorder.hook())
    else:
        ddp.register_comm_hook(recorder, pyddpdiag.timed_bf16_allreduce)


def _ddp() -> DistributedDataParallel:
    return DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)


def _said(act: Any, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def _job(rank: int, _: int, folder: str) -> dict[str, dict[str, Any]]:
    # Of three ranks: without a hook DDP divides otherwise than its builtin hook does, and the bits tell.
    return {way: _life(rank, Path(folder, way), way) for way in WAYS}


def _life(rank: int, folder: Path, way: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    builtin, ddp = _ddp(), _ddp()
    builtin.register_comm_hook(None, allreduce_hook)

    def opened(name: str) -> pyddpdiag.Recorder:
        return pyddpdiag.Recorder(folder / name, capacity_mb=1, parameter_interval=1)

    def step(number: int) -> bool:
        for module in (builtin, ddp):
            module.zero_grad()
            backward(module, rank, number)
        return gradient_bytes(builtin) == gradient_bytes(ddp)

    first = opened("first")
    seen["not attached"] = _said(lambda: first.detach(ddp), UsageError)
    _register(ddp, first, way)
    seen["own"] = [step(0), step(1)]
    second = opened("second")
    seen["taken"] = _said(lambda: second.attach(ddp), AlreadyAttachedError)
    second.detach(ddp)
    same = [step(2), step(3)]
    seen["twice"] = _said(lambda: second.detach(ddp), UsageError)
    first.close()
    same.append(step(4))
    # The cell once more, as it stood there: DDP's own rule. It leaves nothing behind that `attach` would mind.
    seen["again"] = _said(lambda: _register(ddp, second, way), RuntimeError)
    second.attach(ddp)
    same += [step(5), step(6)]
    second.close()
    seen["closed"] = _said(lambda: backward(_other(ddp, second), rank, 0), RuntimeError)
    third = opened("third")
    third.attach(ddp)
    same.append(step(7))
    # From one that is open to another, and away from one that is closed, whose hook would raise.
    with opened("fourth") as fourth:
        fourth.detach(ddp)
        fourth.attach(ddp)
        same.append(step(8))
    fourth.detach(ddp)
    third.close()
    same.append(step(9))
    seen["same"] = same
    seen["folders"] = sorted(entry.name for entry in folder.iterdir())
    return seen


def _other(ddp: DistributedDataParallel, closed: pyddpdiag.Recorder) -> DistributedDataParallel:
    """A module of a closed recorder, as DDP cannot go on with one whose hook raised."""
    other = DistributedDataParallel(copy.deepcopy(ddp.module), bucket_cap_mb=0.002)
    other.register_comm_hook(closed, pyddpdiag.timed_allreduce)
    return other


left = ran_once(_job, 3)


@pytest.mark.parametrize("way", WAYS)
def test_a_detached_module_trains_as_with_the_builtin_hook(left: Left, way: str) -> None:
    for ranks in left[1]:
        seen = ranks[way]
        assert seen["own"] == [way != "compressed"] * 2
        assert seen["same"] == [True] * 8
        # No recorder was opened for a hook that has none.
        assert seen["folders"] == ["first", "fourth", "second", "third"]


@pytest.mark.parametrize("way", WAYS)
def test_each_recorder_has_its_own_passes(left: Left, way: str) -> None:
    for name, passes in {"first": 2, "second": 2, "third": 1, "fourth": 1}.items():
        for rank in open_run(left[0] / way / name).ranks:
            backward_passes = complete(rank, Kind.BACKWARD)
            assert len(backward_passes) == passes
            buckets = complete(rank, Kind.BUCKET)
            assert buckets["sequence"].tolist() == list(range(len(buckets)))
            if name != "first":  # attached: with marks of the forward pass and of parameters
                assert (backward_passes["times"][:, BackwardTime.FORWARD_BEGIN] > 0).all()
                parameters = rank.of_kind(Kind.PARAMETER)
                assert len(parameters) == passes * len(rank.sidecar.modules[0].parameters)


@pytest.mark.parametrize("way", WAYS)
def test_misuse_says_what_to_do(left: Left, way: str) -> None:
    for ranks in left[1]:
        seen = ranks[way]
        assert "recorder.detach(ddp)" in seen["taken"]
        assert ("first" in Path(seen["taken"]).parts) == (way not in ("nothing", "group"))
        for words in (seen["not attached"], seen["twice"]):
            assert "attached to no recorder" in words and "attach(ddp) first" in words
        assert "can only be called once" in seen["again"]
        explanation = pyddpdiag.explain(RuntimeError(seen["again"]))
        assert explanation is not None and "recorder.attach(ddp)" in explanation.fix
        assert "closed" in seen["closed"]


def _closed_job(rank: int, _: int, folder: str) -> dict[str, Any]:
    builtin, ddp = _ddp(), _ddp()
    builtin.register_comm_hook(None, allreduce_hook)
    with pyddpdiag.Recorder(Path(folder, "first"), capacity_mb=1) as first:
        ddp.register_comm_hook(first, pyddpdiag.timed_allreduce)
        backward(ddp, rank, 0)
        backward(builtin, rank, 0)
    with pyddpdiag.Recorder(Path(folder, "second"), capacity_mb=1) as second:
        second.attach(ddp)  # whose recorder is closed: nothing to detach
        for module in (builtin, ddp):
            module.zero_grad()
            backward(module, rank, 1)
        copied = copy.deepcopy(ddp)  # has the hook by name only
        second.attach(copied)
        backward(copied, rank, 2)
        foreign = _ddp()
        foreign.register_comm_hook(None, pyddpdiag.timed(allreduce_hook))
        return {
            "same": gradient_bytes(builtin) == gradient_bytes(ddp),
            "foreign": _said(lambda: second.detach(foreign), UsageError),
            "foreign attached": _said(lambda: second.attach(foreign), AlreadyAttachedError),
        }


def test_a_closed_recorders_module_a_copy_and_a_hook_that_is_not_ours(tmp_path: Path) -> None:
    answers = run_ranks(_closed_job, 2, tmp_path, str(tmp_path))
    for trace, seen in zip(open_run(tmp_path / "second").ranks, answers, strict=True):
        assert seen["same"]
        assert "timed()" in seen["foreign"]
        assert "has a communication hook already" in seen["foreign attached"]
        modules = complete(trace, Kind.BUCKET)["module"].tolist()
        assert set(modules) == {0, 1}
