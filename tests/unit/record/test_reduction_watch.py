"""The calls of process groups are looked at without a change to what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.reductions import ReductionWatch


class Wrapped(dist.ProcessGroup):
    """Of Python's, around Gloo's; it overrides one method and inherits the others."""

    def __init__(self, gloo: dist.ProcessGroup) -> None:
        super().__init__(gloo.rank(), gloo.size())  # type: ignore[call-arg]
        cpu = torch.device("cpu")
        self._register_backend(cpu, dist.ProcessGroup.BackendType.GLOO, gloo._get_backend(cpu))
        self.calls = 0

    def allreduce(self, *arguments: Any) -> Any:
        """Counts."""
        self.calls += 1
        return super().allreduce(*arguments)


@pytest.fixture
def gloo() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_group_of_pythons_inherits_what_it_does_not_override(gloo: dist.ProcessGroup) -> None:
    plain = dist.ProcessGroup.barrier
    watch = ReductionWatch(MagicMock(current_step=0), lambda: None, AveragedAgain())
    try:
        group, values = Wrapped(gloo), torch.ones(3)
        group.barrier(dist.BarrierOptions()).wait()
        group.broadcast([values], dist.BroadcastOptions()).wait()
        group.allreduce([values], dist.AllreduceOptions()).wait()
        dist.all_reduce(values)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            gloo.barrier("what")
        ours: Any = dist.ProcessGroup.barrier
        assert ours is not plain and type(ours) is type(plain)
        assert (ours.__name__, ours.__doc__) == (plain.__name__, plain.__doc__)
    finally:
        watch.close()
    assert group.calls == 1 and values.tolist() == [1, 1, 1]
    assert [(one.operation, one.calls) for one in watch.callers()] == [
        ("barrier", 1),
        ("broadcast", 1),
        ("all_reduce", 1),
        ("all_reduce", 1),
        ("barrier", 1),
    ]
    assert dist.ProcessGroup.barrier is plain
