"""A script sees no difference in a DistributedDataParallel that is watched. With torch's own, in a group of one."""

import copy
import inspect
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.integrations import early_end, unchanged
from pyddpdiag.record.hooks import ScriptsHook

Bucket = dist.GradBucket  # type: ignore[attr-defined]


def _group() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def wrong_bucket(state: object, bucket: int) -> object:
    return default_hooks.allreduce_hook(_group(), bucket)


def wrong_return(state: object, bucket: Bucket) -> int:
    return default_hooks.allreduce_hook(_group(), bucket)


def no_future(state: object, bucket):  # type: ignore[no-untyped-def]
    return 5


class Watching:
    """In place of what records: nothing, or all raises."""

    cures = None
    caught: Sequence[str] = ()

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def made_module(self, ddp: object) -> None:
        if self.broken:
            raise LookupError("of ours")

    def forward(self, ddp: object, given: object) -> None:
        if self.broken:
            raise LookupError("of ours")

    def raised(self, error: BaseException) -> None:
        self.caught = [*self.caught, type(error).__name__]
        if self.broken:
            raise LookupError("of ours")

    def timed(self, hook: Any) -> Any:
        if self.broken:
            raise LookupError("of ours")
        recorder: Any = SimpleNamespace(core=None)
        return ScriptsHook(hook, recorder)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A DDP class of its own that is watched."""

    class Patched(DistributedDataParallel):
        pass

    Patched.__module__, Patched.__qualname__ = __name__, "Patched"
    monkeypatch.setattr(sys.modules[__name__], "Patched", Patched, raising=False)
    monkeypatch.setattr(unchanged, "_state", unchanged._State(watched=Watching(broken=False)))  # type: ignore[arg-type]
    monkeypatch.setattr(unchanged, "_early", early_end.Watch())
    unchanged._patch_ddp(SimpleNamespace(DistributedDataParallel=Patched))
    dist.init_process_group("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    yield Patched
    dist.destroy_process_group()


def refused(make: Any, hook: Any) -> str:
    try:
        make(torch.nn.Linear(2, 2)).register_comm_hook(None, hook)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_ddp_refuses_the_hooks_that_it_refuses_without_us(patched: Any) -> None:
    hooks = (wrong_bucket, wrong_return, 5, partial(wrong_bucket), default_hooks.bf16_compress_hook)
    for hook in hooks:
        assert refused(patched, hook) == refused(DistributedDataParallel, hook)
    assert "bucket annotation" in refused(patched, wrong_bucket)


def test_an_accepted_hook_has_its_name_and_its_copy_is_the_scripts(patched: Any) -> None:
    ddp = patched(torch.nn.Linear(2, 2))
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    hook, _ = ddp._comm_hooks[0]
    assert type(hook) is ScriptsHook and hook.__name__ == "fp16_compress_hook"
    assert ddp._get_ddp_logging_data()["comm_hook"] == "fp16_compress_hook"
    assert b"pyddpdiag" not in pickle.dumps(hook)
    assert copy.deepcopy(hook) is pickle.loads(pickle.dumps(hook)) is default_hooks.fp16_compress_hook


def test_calls_have_torchs_signature_and_can_be_pickled(patched: Any) -> None:
    ddp = patched(torch.nn.Linear(2, 2))
    assert inspect.signature(ddp) == inspect.signature(torch.nn.Linear(2, 2))
    assert ddp.__call__.__name__ == torch.nn.Module.__call__.__name__
    assert ddp.__call__.__reduce__() == (getattr, (ddp, torch.nn.Module.__call__.__name__))
    assert pickle.loads(pickle.dumps(patched.__call__)) is patched.__call__


def test_a_warning_of_torch_names_the_scripts_line(patched: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patched(torch.nn.Linear(2, 2), check_reduction=True)
    [file] = {each.filename for each in caught if "check_reduction" in str(each.message)}
    assert file == __file__


def test_an_error_of_ours_ends_no_training(patched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_state", unchanged._State(watched=Watching(broken=True)))  # type: ignore[arg-type]
    ddp = patched(torch.nn.Linear(2, 2))
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    ddp(torch.ones(1, 2)).sum().backward()
    assert ddp.module.weight.grad is not None


@pytest.mark.parametrize("broken", [False, True])
def test_what_a_forward_pass_raises_is_noted_and_the_scripts(
    patched: Any, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    watching = Watching(broken=broken)
    monkeypatch.setattr(unchanged, "_state", unchanged._State(watched=watching))  # type: ignore[arg-type]
    ddp = patched(torch.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ddp(torch.ones(1, 3))
    assert watching.caught == ["RuntimeError"]


def test_what_a_hook_returns_is_ddps_business(patched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyddpdiag.record import hooks

    native = SimpleNamespace(timed_foreign=lambda core, bucket, run: run())
    monkeypatch.setattr(hooks, "_native", native)
    said = []
    for make in (DistributedDataParallel, patched):
        ddp = make(torch.nn.Linear(2, 2))
        ddp.register_comm_hook(None, no_future)
        with pytest.raises(RuntimeError) as error:
            ddp(torch.ones(1, 2)).sum().backward()
        said.append(str(error.value).splitlines()[0])
    assert said[0] == said[1]
