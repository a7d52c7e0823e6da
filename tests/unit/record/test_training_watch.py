"""Optimizers, loaders and process groups are watched, and no training changes or ends by it."""

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock, PropertyMock

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from pyddpdiag.record.averaged_again import AveragedAgain
from pyddpdiag.record.loaders import Loaders
from pyddpdiag.record.modes import Modes
from pyddpdiag.record.optimizers import Optimizers
from pyddpdiag.record.reduced import Reduced
from pyddpdiag.record.reductions import ReductionWatch


def test_an_optimizer_steps_though_watching_it_fails() -> None:
    core: Any = MagicMock(paused=False, current_step=0)
    core.layouts.side_effect = RuntimeError("an error of ours")
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    watch = Optimizers(core, lambda: None, Modes(lambda: None), AveragedAgain())
    watch.add(Reduced(MagicMock(index=0, passes=0, names=["weight"]), [weakref.ref(parameter)]))
    try:
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        optimizer.step()
        optimizer.step()
    finally:
        watch.close()
    core.layouts.assert_called_once()  # and then no more
    assert parameter.tolist() == [0, 0]


def test_an_optimizer_is_followed_less_closely_after_a_while() -> None:
    """It is seen all the same that it steps after two passes, how often, and where its learning rate becomes 0."""
    core: Any = MagicMock(paused=False, current_step=0)
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    module = Reduced(MagicMock(index=0, passes=0, names=["weight"]), [weakref.ref(parameter)])
    watch = Optimizers(core, lambda: None, Modes(lambda: None), AveragedAgain())
    watch.add(module)
    try:
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        for step in range(400):
            optimizer.param_groups[0]["lr"] = 0.5 * (step < 300)
            module.native.passes += 2
            optimizer.step()
    finally:
        watch.close()
    (seen,) = watch.stepped()
    assert (seen.steps, seen.zero_since) == (400, 300) and set(seen.passes) == {2}
    # The first ones, and two of seven.
    assert 64 + 2 * 336 // 7 - 2 <= sum(seen.passes.values()) <= 64 + 2 * 336 // 7 + 2


def test_gradients_are_read_on_the_thread_that_steps_alone() -> None:
    """Another one may all-reduce a value to log meanwhile: torch crashes where a gradient is read that is dropped."""
    parameter = MagicMock()
    type(parameter).grad = gradient = PropertyMock(return_value=torch.ones(3))
    module = Reduced(
        MagicMock(index=0, passes=1),
        [lambda: parameter],
        owner=lambda: MagicMock(_comm_hooks=[]),
        ranks=frozenset({0, 1}),
    )
    again = AveragedAgain()
    again.add(module)

    def reduces() -> int:
        gradient.reset_mock()
        again.reduces([torch.ones(3)], "SUM", (0, 1))
        return gradient.call_count

    assert not reduces()  # nobody knows yet which thread trains
    module.stepped(0)
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(reduces).result()
    assert reduces()


class Counted(BatchSampler):
    """Whose length is asked for by making all batches, as some do."""

    asked = 0

    def __len__(self) -> int:
        type(self).asked += 1
        return len(list(torch.randperm(8)))

    @property
    def shuffle(self) -> bool:
        type(self).asked += 1
        return True


def test_no_code_of_a_sampler_or_of_a_proxy_runs() -> None:
    loaders = Loaders(lambda: None)
    data = list(range(8))
    loaders.begins(DataLoader(data, batch_sampler=Counted(RandomSampler(data), 2, drop_last=False)))
    loaders.begins(MagicMock())
    (found,) = loaders.loaded()
    # The length is that of the sampler within, of a class of torch's.
    assert (found.sampler, found.length, found.batch_size, found.shuffle) == ("RandomSampler", 8, 2, None)
    own = Loaders(lambda: None)
    own.begins(DataLoader(data, sampler=Counted(RandomSampler(data), 2, drop_last=False)))
    assert (own.loaded()[0].sampler, own.loaded()[0].length) == ("Counted", None)
    assert Counted.asked == 0


class Alike(torch.optim.SGD):
    """Compares by value, so it has no hash."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Alike

    __hash__ = None  # type: ignore[assignment]


def test_optimizers_without_a_hash_are_watched_and_forgotten() -> None:
    watch = Optimizers(
        MagicMock(paused=False, current_step=0), lambda: None, Modes(lambda: None), AveragedAgain()
    )
    parameter = torch.ones(2, requires_grad=True)
    watch.add(Reduced(MagicMock(index=0, passes=0, names=["weight"]), [weakref.ref(parameter)]))
    two = [Alike([parameter], lr=0.1), Alike([parameter], lr=0.2)]
    for _ in range(3):
        for each in two:
            each.step()
    assert [one.steps for one in watch.stepped()] == [3, 3]
    del each
    two.clear()
    gc.collect()
    assert not watch._stepping.known
    watch.close()


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
    # What a test before this one has left, whose recorder nobody closed, goes with it.
    ReductionWatch(MagicMock(current_step=0), lambda: None, AveragedAgain()).close()
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
        *[("barrier", 1), ("broadcast", 1), ("all_reduce", 1), ("all_reduce", 1), ("barrier", 1)]
    ]
    assert dist.ProcessGroup.barrier is plain
