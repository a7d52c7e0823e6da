"""Probes around hooks that are not ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.hooked import complete, in_order
from support.models import batch, branches, gradient_bytes
from support.ranks import ran_once, run_ranks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

import pyddpdiag
from pyddpdiag.errors import AlreadyAttachedError, GradientError, UsageError
from pyddpdiag.trace.layout import BucketTime, Flag, GradientValue, Kind
from pyddpdiag.trace.reader import read_trace

STEPS = 4


def _state(hook: str) -> Any:
    if hook == "powersgd":
        return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
    return None


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "powersgd": powerSGD_hook.powerSGD_hook,
}


def _job(rank: int, _: int, folder: str) -> dict[str, bool]:
    same = {}
    for name, hook in HOOKS.items():
        bits = []
        for probes in (False, True):
            torch.manual_seed(0)
            # PowerSGD starts collectives from its callbacks, whose order over several buckets is not the same on
            # all ranks: with Gloo it works with one bucket only.
            ddp = DistributedDataParallel(
                branches(torch.float32), bucket_cap_mb=25 if name == "powersgd" else 0.002
            )
            with pyddpdiag.Recorder(f"{folder}/{name}-{probes}", capacity_mb=1) as recorder:
                ddp.register_comm_hook(_state(name), pyddpdiag.timed(hook, recorder) if probes else hook)
                for step in range(STEPS):
                    ddp.zero_grad()
                    ddp(batch(rank, step, torch.float32)).square().mean().backward()
                bits.append(gradient_bytes(ddp))
        same[name] = bits[0] == bits[1]
    return same


trained = ran_once(_job, 2)


@pytest.mark.parametrize("hook", HOOKS)
def test_results_are_the_hooks_own(trained: tuple[Path, Any], hook: str) -> None:
    assert [rank[hook] for rank in trained[1]] == [True, True]


@pytest.mark.parametrize("hook", HOOKS)
def test_buckets_are_recorded(trained: tuple[Path, Any], hook: str) -> None:
    buckets = complete(read_trace(trained[0] / f"{hook}-True" / "rank_0.ddptrace"), Kind.BUCKET)
    assert len(buckets) >= STEPS
    assert (buckets["flags"] & Flag.FOREIGN).all()
    in_order(buckets, BucketTime.READY, BucketTime.ENQUEUED, BucketTime.STARTED, BucketTime.ENDED)


@pytest.mark.parametrize("hook", HOOKS)
def test_statistics_are_of_what_goes_in(trained: tuple[Path, Any], hook: str) -> None:
    model = branches(torch.float32)
    model(batch(0, 0, torch.float32)).square().mean().backward()
    own = sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
    records = complete(read_trace(trained[0] / f"{hook}-True" / "rank_0.ddptrace"), Kind.GRADIENT)
    first = records["times"][records["step"] == 0]
    found = np.ascontiguousarray(first[:, GradientValue.SUM_SQUARES]).view(np.float64).sum()
    assert found == pytest.approx(own, rel=1e-5)
    assert not first[:, GradientValue.CHECKSUM].any()


POWER_STEPS = 20


def _every_operation(rank: int, _: int, folder: str) -> int:
    """How many operations PowerSGD began, by the count of their group."""
    group = dist.group.WORLD
    assert group is not None
    ddp = DistributedDataParallel(branches(torch.float32))
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=3, min_compression_rate=1)
        ddp.register_comm_hook(state, pyddpdiag.timed(powerSGD_hook.powerSGD_hook, recorder))
        before = group._get_sequence_number_for_group()
        for step in range(POWER_STEPS):
            ddp(batch(rank, step, torch.float32)).square().mean().backward()
        return int(group._get_sequence_number_for_group() - before)


def test_no_operation_of_another_hook_is_lost(tmp_path: Path) -> None:
    """Each bucket's first is its start; what its callbacks begin later are other collectives."""
    began = run_ranks(_every_operation, 2, tmp_path, str(tmp_path / "trace"))
    for rank, operations in enumerate(began):
        trace = read_trace(tmp_path / "trace" / f"rank_{rank}.ddptrace")
        buckets = complete(trace, Kind.BUCKET)
        assert (buckets["times"][:, BucketTime.STARTED] > 0).all()
        assert len(buckets) == POWER_STEPS
        assert operations > 2 * POWER_STEPS
        assert len(buckets) + len(complete(trace, Kind.COLLECTIVE)) == operations


def _bad_number(rank: int, _: int, folder: str) -> str:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder, capacity_mb=1, sentinel="raise", sentinel_interval=1) as recorder:
        ddp.register_comm_hook(None, pyddpdiag.timed(default_hooks.allreduce_hook, recorder))
        try:
            for step in range(2):
                loss = ddp(batch(rank, step, torch.float32)).square().mean()
                (loss * float("nan") if step == rank == 1 else loss).backward()
        except GradientError as error:
            return str(error)
    return ""


def test_the_sentinel_watches_what_goes_in(tmp_path: Path) -> None:
    for words in run_ranks(_bad_number, 2, tmp_path, str(tmp_path)):
        assert "rank 1 put" in words and "of step 1" in words


class _Timed(DistributedDataParallel):
    """As in docs/integrations.md."""

    def register_comm_hook(self, state: object, hook: Any) -> None:
        super().register_comm_hook(state, pyddpdiag.timed(hook))


def _wrong(rank: int, _: int, folder: str) -> list[str]:
    messages = []

    def no_future(state: object, bucket: Any) -> Any:
        return bucket.buffer()

    def fails(state: object, bucket: Any) -> Any:
        raise ArithmeticError("a bug in the user's hook")

    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        for hook in (no_future, fails):
            ddp = DistributedDataParallel(branches(torch.float32))
            ddp.register_comm_hook(None, pyddpdiag.timed(hook, recorder))
            try:
                ddp(batch(rank, 0, torch.float32)).square().mean().backward()
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
            with pytest.raises(AlreadyAttachedError) as caught:
                recorder.attach(ddp)
            assert f"'timed_{hook.__name__}' with the probes around it" in caught.value.message
        # Such modules train on accelerators only.
        for kind in (DistributedDataParallel, _Timed):
            ddp = kind(branches(torch.float32), mixed_precision=_MixedPrecision(torch.bfloat16))
            with pytest.raises(AlreadyAttachedError) as caught:
                recorder.attach(ddp)
            messages.append(f"{caught.value}")
        try:
            pyddpdiag.timed("allreduce")  # type: ignore[arg-type]
        except UsageError as error:
            messages.append(str(error))
    return messages


def test_a_hook_that_fails_fails_as_itself_and_attach_names_whose_it_is(tmp_path: Path) -> None:
    for no_future, fails, mixed, timed_mixed, no_hook in run_ranks(
        _wrong, 2, tmp_path, str(tmp_path / "trace")
    ):
        assert "no_future returned Tensor, not a torch.futures.Future" in no_future
        assert "a bug in the user's hook" in fails
        assert "takes a communication hook, not str" in no_hook
        torchs = "_reducer_allreduce_and_upcast_hook'"
        assert f"torch's own '{torchs}, which DistributedDataParallel(mixed_precision=...) registers" in mixed
        assert "pyddpdiag.timed()" in mixed
        assert f"'timed_{torchs} with the probes around it" in timed_mixed
