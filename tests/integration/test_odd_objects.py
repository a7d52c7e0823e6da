"""Modules that return unusual objects train as without a recorder, and are pickled as such."""

import gc
import pickle
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import torch
from support.ranks import ran_once
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.run import open_run

PASSES = 4


class Attributes:
    """A dictionary by attributes, which has only those."""

    def __init__(self, **values: Any) -> None:
        self.__dict__["_values"] = values

    def __getattr__(self, name: str) -> Any:
        return self._values[name]


class AllAttributes:
    """Has each attribute that it is asked for."""

    def __init__(self, out: torch.Tensor) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        return 3


@dataclass
class Node:
    out: torch.Tensor
    parent: Any = None
    late: Any = field(init=False)


class Strict(torch.Tensor):
    """Does what the loop asks of it, and refuses all else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (torch.Tensor.sum, torch.Tensor.backward):
            raise TypeError(f"{func} of a Strict tensor")
        return super().__torch_function__(func, types, args, kwargs or {})


def _cycle(out: torch.Tensor) -> Node:
    node = Node(out)
    node.parent = node
    return node


RETURNS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "attributes": (lambda out: Attributes(out=out), lambda given: given.out),
    "all attributes": (AllAttributes, lambda given: given.out),
    "a cycle": (_cycle, lambda given: given.out),
    "a tensor of its own": (lambda out: out.as_subclass(Strict), lambda given: given),
    "a tensor": (lambda out: out, lambda given: given),
}
SEEN = ("a cycle", "a tensor of its own", "a tensor")
"""In which the tensors are found, so that the begin of backward is known."""


class Net(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.way = way

    def forward(self, batch: torch.Tensor) -> Any:
        return RETURNS[self.way][0](self.layer(batch))


def _trained(way: str, folder: Path | None) -> list[torch.Tensor]:
    torch.manual_seed(3)
    ddp = DistributedDataParallel(Net(way))
    recorder = pyddpdiag.Recorder(folder) if folder is not None else None
    if recorder is not None:
        recorder.attach(ddp)
    for _ in range(PASSES):
        given = ddp(torch.randn(2, 4))
        RETURNS[way][1](given).sum().backward()
    if recorder is not None:
        if way == "a tensor":
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pickle.dumps(ddp(torch.randn(2, 4)).detach())
            saved = pickle.dumps(ddp.__dict__["_forward_hooks"])
            assert b"pyddpdiag" not in saved + pickle.dumps(ddp.__dict__["_forward_pre_hooks"])
            (hook,) = pickle.loads(saved).values()
            assert hook(ddp, (), 3) is None
        recorder.close()
    return [one.grad for one in ddp.parameters() if one.grad is not None]


asked: list[str] = []


def _asks(self: Any, *_: Any, **__: Any) -> Any:
    asked.append(type(self).__name__)
    raise AssertionError("of the recorder")


ASKED = (
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "named_children",
    "buffers",
)


def _trained_unasked(folder: Path) -> None:
    """Classes whose methods are all the script's own, and DDP of such a class, are trained, and asked nothing."""
    ddp = DistributedDataParallel(Net("a tensor"))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    own = {**dict.fromkeys(ASKED, _asks), "training": property(_asks)}
    ddp.module.__class__ = type("OwnNet", (Net,), own)
    ddp.__class__ = type("OwnDDP", (DistributedDataParallel,), {**own, "__getattr__": _one_of_module})
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        for _ in range(PASSES):
            ddp(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    assert not asked


def _one_of_module(self: Any, name: str) -> Any:
    if name not in ("module", "join", "_join_config"):
        asked.append(name)
    return nn.Module.__getattr__(self, name)


class ByValue(DistributedDataParallel):
    """Of which each one is equal to each other."""

    def __eq__(self, other: object) -> bool:
        asked.append("eq")
        return True

    def __hash__(self) -> int:
        return 1


def _alike(folder: Path) -> None:
    first, second = ByValue(Net("a tensor")), ByValue(Net("a tensor"))
    with pyddpdiag.Recorder(folder) as recorder:
        for ddp in (first, second):
            recorder.attach(ddp)
            ddp(torch.randn(2, 4)).sum().backward()
    assert not asked


def _late(*_: Any) -> None:
    raise TimeoutError("late")


def _interrupted(folder: Path) -> None:
    """A signal of the script's comes while the recorder looks, and what its handler raises is raised."""
    ddp = DistributedDataParallel(Net("a tensor"))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    signal.signal(signal.SIGTERM, _late)
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        for where in (
            "ddp_modules.passes_here",
            "batch_marks._parts",
            "optimizers.Stepping",
            "modes.Modes._look",
            "pass_looks.PassLooks.begins",
        ):
            comes = MagicMock(side_effect=lambda *_, **__: signal.raise_signal(signal.SIGTERM))
            with patch(f"pyddpdiag.record.{where}", comes), pytest.raises(TimeoutError, match="late"):
                ddp(torch.randn(2, 4)).sum().backward()
                optimizer.step()
        if hasattr(signal, "setitimer"):
            # So many that the signal comes while they are gone through.
            many: list[list[int]] = [[] for _ in range(10**6)]
            signal.signal(signal.SIGALRM, _late)
            with pytest.raises(TimeoutError, match="late"):
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                gc.collect()
                time.sleep(60)
            del many
        of_begin = "pyddpdiag.record.pass_looks.PassLooks.begins"
        with patch(of_begin, MagicMock(side_effect=KeyboardInterrupt)), pytest.raises(KeyboardInterrupt):
            ddp(torch.randn(2, 4)).sum().backward()
        with patch(of_begin, MagicMock(side_effect=ValueError)) as ours:
            ddp(torch.randn(2, 4)).sum().backward()
        assert ours.called
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _traced(folder: Path) -> None:
    """The recorder adds nothing to a trace of torch.jit, in which each size is a tensor."""
    ddp = DistributedDataParallel(Net("a tensor"))
    with pyddpdiag.Recorder(folder) as recorder, warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        recorder.attach(ddp)
        torch.jit.trace(ddp, torch.randn(2, 4), check_trace=False)
        ddp(torch.randn(2, 4)).sum().backward()


def _unwritten(folder: Path) -> None:
    """Whatever is wrong with the sidecar, a script that makes errors of warnings trains as well."""
    ddp = DistributedDataParallel(Net("a tensor"))
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        with patch.object(type(recorder.modules.training), "facts", lambda _: torch.ones(2)):
            with pytest.warns(RuntimeWarning, match="cannot write .*rank_0.json"):
                recorder.modules.write_sidecar()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                ddp(torch.randn(2, 4)).sum().backward()
                recorder.modules.write_sidecar()
            recorder.modules.note_ended()


def _job(rank: int, world_size: int, folder: str) -> None:
    del rank, world_size
    for way in RETURNS:
        plain, recorded = _trained(way, None), _trained(way, Path(folder, way))
        assert len(plain) == 2 and all(map(torch.equal, plain, recorded)), way
    for case in (_trained_unasked, _alike, _interrupted, _traced, _unwritten):
        case(Path(folder, case.__name__))


trained = ran_once(_job, 1, answers=False)


def test_they_train_as_without_a_recorder(trained: Path) -> None:
    for way in RETURNS:
        passes = open_run(trained / way).ranks[0].of_kind(Kind.BACKWARD)
        known = passes["times"][:, BackwardTime.BEGIN] > 0
        assert len(passes) == PASSES and known.all() == (way in SEEN), way
