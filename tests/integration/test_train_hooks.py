"""The digits with every hook: each learns them, and those that do not round learn them the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from support.nvml import Gpu, Nvml
from train_support import records_published

from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.ranks.interfaces import loopback
from pyddpdiag.record.gpu import Watch
from pyddpdiag.trace.sidecar import read_sidecar
from pyddpdiag.train import Averaging, HookKind, TrainResult, TrainSettings, launch, loop
from pyddpdiag.train.loop import train_rank
from pyddpdiag.train.rank_session import Session

pytestmark = pytest.mark.usefixtures("forked_launches", "own_folder")
# The defaults, and what they learn, are those of test_train_run.py. One epoch is enough to tell a hook that averages
# from one that does not (84% seen, 10% by chance).
ONE_EPOCH, GOAL = TrainSettings(epochs=1, lr=0.02, timeout_s=100), 0.6
PLAIN, BUILTIN = Averaging(HookKind.PLAIN), Averaging(HookKind.BUILTIN)
NATIVE, TIMED = Averaging(), Averaging(HookKind.TIMED)
BF16, TIMED_BF16 = Averaging(compress="bf16"), Averaging(HookKind.TIMED, compress="bf16")
FP16, TIMED_FP16 = Averaging(compress="fp16"), Averaging(HookKind.TIMED, compress="fp16")
FEEDBACK = Averaging(compress="bf16", error_feedback=True)
SHARED = Averaging(shared_memory="auto")
# Rates that are given, so that buckets are divided whatever this machine does meanwhile.
PARTS = (f"{loopback()}=100", f"{loopback()}=300")
LANES, TIMED_LANES = Averaging(lanes=PARTS), Averaging(HookKind.TIMED, lanes=PARTS)
# On one host nothing travels, so nothing is rounded.
SHARED_BF16 = Averaging(compress="bf16", shared_memory="require")


def kind_of(way: Averaging) -> tuple[str | None, bool]:
    """Those alike have the same losses to the last bit; so have a native hook and its Python twin."""
    rounds = way.compress if way.shared_memory == "off" else None
    return rounds, way.error_feedback


def _with(session: Session, hook: Averaging) -> TrainResult:
    """One training in the process group that is up."""
    return train_rank(
        replace(
            session,
            settings=replace(session.settings, **asdict(hook), trace=None),
            trace=f"{session.trace}-{hook.label}" if hook.hook.records else None,
            tell=lambda event: None,
        )
    )


def _several(session: Session, hooks: Sequence[Averaging]) -> TrainResult:
    """Fails in the rank unless each hook learns the digits, and as the others of its class do."""
    results = {hook: _with(session, hook) for hook in hooks}
    curves = {
        hook: [(e.train_loss, e.test_loss, e.accuracy) for e in result.history]
        for hook, result in results.items()
    }
    first: dict[tuple[str | None, bool], Averaging] = {}
    for hook in hooks:
        known = first.setdefault(kind_of(hook), hook)
        if curves[hook] != curves[known]:
            raise ValueError(f"{hook.label} {curves[hook]} is not {known.label} {curves[known]}")
    if len({str(curves[hook]) for hook in first.values()}) != len(first):
        raise ValueError(f"hooks do not do what their names say: {curves}")
    poor = {hook.label: result.accuracy for hook, result in results.items() if result.accuracy < GOAL}
    if poor:
        raise ValueError(f"not learned: {poor}")
    return results[hooks[0]]


HOOKS = (
    *(PLAIN, BUILTIN, NATIVE, TIMED, SHARED, SHARED_BF16, LANES, TIMED_LANES),
    *(BF16, TIMED_BF16, FEEDBACK, FP16, TIMED_FP16),
)


# Thirteen trainings, on a machine that may be busy.
@pytest.mark.timeout(600)
def test_every_hook_learns_the_digits_and_exact_ones_to_the_last_bit_as_plain_ddp(tmp_path: Path) -> None:
    assert {way.hook for way in HOOKS} == set(HookKind)
    assert {way.compress for way in HOOKS} == {None, "bf16", "fp16"}
    settings = replace(ONE_EPOCH, trace=str(tmp_path / "t"))
    launch(settings, 2, job=partial(_several, hooks=HOOKS))
    for hook in HOOKS:
        for rank in range(2):
            published = records_published(tmp_path / f"t-{hook.label}", rank)
            assert (published > 0) == hook.hook.records, hook
            if hook.hook.records:
                sidecar, _ = read_sidecar(tmp_path / f"t-{hook.label}" / f"rank_{rank}.json")
                assert sidecar.recorded_by == "train"


def _laid_out(session: Session) -> TrainResult:
    """Fails in the rank unless other buckets, views, and cores of its own leave the training as it is."""
    plain = replace(session.settings.without_hook(), trace=None, threads=1)
    other = replace(plain, bucket_cap_mb_list=(1.0, 5.0), gradient_as_bucket_view=True, pin_ranks=True)
    one, result = (
        train_rank(replace(session, settings=each, trace=None, tell=lambda event: None))
        for each in (plain, other)
    )
    if torch.get_num_threads() != 1 or one.buckets == result.buckets:
        raise ValueError(f"{torch.get_num_threads()} threads, {one.buckets} and {result.buckets} buckets")
    curves = [[(e.train_loss, e.test_loss) for e in each.history] for each in (one, result)]
    if curves[0] != curves[1]:
        raise ValueError(f"{curves[0]} is not {curves[1]}")
    return result


@pytest.mark.timeout(240)
def test_other_buckets_views_threads_and_cores_are_those_of_the_options() -> None:
    launch(ONE_EPOCH, 2, job=_laid_out)


def _with_a_gpu_to_watch(session: Session) -> TrainResult:
    """Trains on the CPU as ever, beside a stand-in for NVML on rank 1 only."""
    gpus = [Gpu("GPU-other", 99), Gpu("GPU-b", 30, 2_000_000_000)]

    def watch(device, tell):
        return Watch(Nvml(*gpus), "b", tell, 0.01) if session.place.rank == 1 else None

    loop.watch = watch
    return train_rank(session)


def test_the_use_of_all_ranks_gpus_is_in_the_result(tmp_path: Path) -> None:
    settings = TrainSettings(epochs=1, batch_size=128, hook=HookKind.PLAIN, timeout_s=60)
    [use] = launch(settings, 2, job=_with_a_gpu_to_watch).gpus
    assert use == GpuUse(1, use.samples, 30.0, 2_000_000_000, 80_000_000_000)
    assert use.samples > 1
