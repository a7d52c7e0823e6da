"""The training loop of one rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.errors import TrainError, UsageError
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.session import Note
from pyddpdiag.record.gpu import watch
from pyddpdiag.train import state
from pyddpdiag.train.events import EpochDone, Planned, StepDone, TrainResult
from pyddpdiag.train.probes import NoProbe, Probe, ddp_arguments, probes, use_cores
from pyddpdiag.train.rank_session import Session
from pyddpdiag.train.settings import Device
from pyddpdiag.workloads.samples import Samples, ShardedBatches, fetched, share, steps_per_epoch
from pyddpdiag.workloads.workload import Workload

_BATCH = 256


def scores_and_loss(
    module: nn.Module, inputs: Tensor, targets: Tensor, amp: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (m, classes), targets (m,) and the summed loss; every target of a sample counts by itself."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=amp):
        scores = module(inputs)
    flat, wanted = scores.float().flatten(0, -2), targets.flatten()
    return flat, wanted, functional.cross_entropy(flat, wanted, reduction="sum")


@torch.no_grad()
def evaluate(
    module: nn.Module, samples: Samples, place: Place, device: torch.device, *, workers: int, amp: bool
) -> tuple[float, float]:
    """Mean loss and accuracy per target over all samples; all ranks must call it."""
    for buffer in module.buffers():
        # Each rank has its own batch normalisation statistics until the next step takes those of rank 0.
        dist.broadcast(buffer, src=0)
    part = share(len(samples), place.world_size, place.rank)
    mine = np.arange(part.start, part.stop)
    batches = [mine[i : i + _BATCH] for i in range(0, len(mine), _BATCH)]
    loss, correct, count = 0.0, 0, 0
    module.eval()
    for inputs, targets in fetched(samples, batches, None, workers):
        scores, wanted, summed = scores_and_loss(module, inputs.to(device), targets.to(device), amp)
        loss += summed.item()
        correct += int((scores.argmax(1) == wanted).sum())
        count += len(wanted)
    module.train()
    totals = total(loss, correct, count)
    return totals[0] / totals[2], totals[1] / totals[2]


def total(*values: float) -> list[float]:
    """The sums of the values over all ranks, in double precision."""
    totals: Tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(totals)
    sums: list[float] = totals.tolist()
    return sums


@contextmanager
def watched(device: torch.device, tell: Callable[[str], None]) -> Iterator[Callable[[int], GpuUse | None]]:
    """Watches the device during the block; gives a function that tells a rank's use after it.

    On the CPU nothing is done, and nothing is imported. `tell`: takes a sentence if the use cannot be sampled.
    """
    begun = watch(device, tell)
    try:
        yield begun.use if begun is not None else lambda rank: None
    finally:
        if begun is not None:
            begun.stop()


def gather(mine: GpuUse | None, place: Place) -> tuple[GpuUse, ...]:
    """The use of all ranks' GPUs, in the order of ranks without those that have none; all ranks must call it."""
    found: list[GpuUse | None] = [mine]
    if dist.is_initialized():  # a script may have destroyed the process group
        found *= place.world_size
        dist.all_gather_object(found, mine)
    return tuple(use for use in found if use is not None)


_STEP_EVENT_INTERVAL_S = 0.1


T = TypeVar("T")


class Waiting:
    """Adds up the seconds spent in a loader, over all loops over `of`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def of(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches."""
        batches = iter(loader)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - begin
            yield batch


@dataclass(frozen=True)
class _Run:
    """What the loop needs throughout."""

    session: Session
    work: Workload
    device: torch.device
    state: state.State
    model: nn.Module
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def batch_size(self) -> int:
        return self.session.settings.total_batch(self.session.place.world_size)

    @property
    def lr(self) -> float:
        return self.session.settings.peak_lr(self.session.place.world_size)


def train_rank(session: Session) -> TrainResult:
    """Trains on this rank to the end; all ranks of the default process group must call it.

    Raises:
        CheckpointError: the checkpoint cannot be used or written.
        TrainError: the loss is not finite.
        UsageError: the settings leave nothing to train, or the batch cannot be split over the ranks.
    """
    settings, place = session.settings, session.place
    threads = use_cores(session)
    device = device_of(settings.device, place)
    with watched(device, lambda text: session.tell(Note(text))) as gpu_use:
        if settings.script is not None:
            from pyddpdiag.train.script import run_script

            result = run_script(session, device)
        else:
            result = _train(session, device, threads)
    return replace(result, gpus=gather(gpu_use(place.rank), place))


def _train(session: Session, device: torch.device, threads: int) -> TrainResult:
    settings, place = session.settings, session.place
    work = session.prepare(settings)
    settings.check_world(place.world_size, len(work.train))
    begun = state.begin(session, work, device)
    run = _Run(session, work, device, begun, _wrap(session, begun.module, device))
    first = len(begun.history)
    if place.rank == 0:
        session.tell(_plan(run, threads))
    begin = time.perf_counter()
    if settings.evaluate:
        _evaluate_only(run)
    elif isinstance(run.model, DistributedDataParallel):
        watchdog_s = settings.watchdog_s
        with probes(run.model, settings.averaging, session.trace, settings.force, watchdog_s) as probe:
            begin = time.perf_counter()
            _epochs(run, probe)
    else:
        _epochs(run, NoProbe())
    seconds = time.perf_counter() - begin
    epochs = 0 if settings.evaluate else len(begun.history) - first
    return TrainResult(
        world_size=place.world_size,
        hook=settings.averaging.label,
        trace=session.trace if run.model is not begun.module else None,
        parameters=sum(p.numel() for p in begun.module.parameters()),
        buckets=_bucket_count(run.model),
        history=tuple(begun.history),
        seconds=seconds,
        dataset=work.dataset,
        batch_size=run.batch_size,
        lr=run.lr,
        data_wait_s=run.waiting.seconds,
        steps=epochs * steps_per_epoch(len(work.train), run.batch_size),
    )


def _wrap(session: Session, module: nn.Module, device: torch.device) -> nn.Module:
    settings = session.settings
    if not settings.ddp or settings.evaluate:
        return module
    ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=ids, **ddp_arguments(session))


def _plan(run: _Run, threads: int) -> Planned:
    settings, world_size = run.session.settings, run.session.place.world_size
    shares = (share(run.batch_size, world_size, rank) for rank in range(world_size))
    return Planned(
        world_size=world_size,
        train_samples=len(run.work.train),
        test_samples=len(run.work.test),
        shares=tuple(part.stop - part.start for part in shares),
        epochs=settings.epochs,
        steps_per_epoch=steps_per_epoch(len(run.work.train), run.batch_size),
        parameters=sum(p.numel() for p in run.state.module.parameters()),
        threads=threads,
        trace=run.session.trace,
        dataset=run.work.dataset,
        lr=run.lr,
        device=run.device.type,
        first_epoch=len(run.state.history),
    )


def _epochs(run: _Run, probe: Probe) -> None:
    session, settings, place = run.session, run.session.settings, run.session.place
    steps = steps_per_epoch(len(run.work.train), run.batch_size)
    for epoch in range(len(run.state.history), settings.epochs):
        begin = time.perf_counter()
        train_loss = _epoch(run, probe, epoch, steps)
        if not math.isfinite(train_loss):
            raise TrainError(
                f"The training loss became {train_loss} in epoch {epoch + 1}.", hint="lower --lr."
            )
        with probe.phase("evaluation"):
            test_loss, accuracy = _test(run)
        done = EpochDone(epoch, train_loss, test_loss, accuracy, time.perf_counter() - begin)
        run.state.history.append(done)
        writes = settings.checkpoint is not None and place.rank == 0
        with probe.phase("checkpoint") if writes else nullcontext():
            state.save(session, run.work, run.state)
        if place.rank == 0:
            session.tell(done)


def _epoch(run: _Run, probe: Probe, epoch: int, steps: int) -> float:
    """Trains one epoch; the mean loss per target over all ranks."""
    settings, place = run.session.settings, run.session.place
    batches = ShardedBatches(
        run.work.train, run.batch_size, place.world_size, place.rank, settings.seed, epoch, settings.workers
    )
    sent_at = -math.inf
    loss_sum, count = 0.0, 0
    for step, (inputs, targets) in enumerate(probe.steps(run.waiting.of(batches))):
        for group in run.state.optimiser.param_groups:
            group["lr"] = run.lr * rate(epoch * steps + step, settings.epochs * steps)
        run.state.optimiser.zero_grad()
        _, wanted, summed = scores_and_loss(
            run.model, inputs.to(run.device), targets.to(run.device), settings.amp
        )
        # DDP averages over the ranks; shares may differ by one sample, so each rank divides by the mean share.
        per_sample = len(wanted) / len(targets)
        torch.autograd.backward(summed * (place.world_size / (run.batch_size * per_sample)))
        run.state.optimiser.step()
        loss = summed.item()
        loss_sum += loss
        count += len(wanted)
        now = time.monotonic()
        if place.rank == 0 and (now - sent_at >= _STEP_EVENT_INTERVAL_S or step + 1 == steps):
            run.session.tell(StepDone(epoch, step, loss / len(wanted)))
            sent_at = now
    sums = total(loss_sum, count)
    return sums[0] / sums[1]


def _test(run: _Run) -> tuple[float, float]:
    settings = run.session.settings
    return evaluate(
        run.state.module,
        run.work.test,
        run.session.place,
        run.device,
        workers=settings.workers,
        amp=settings.amp,
    )


def _evaluate_only(run: _Run) -> None:
    """Replaces the last epoch's test by a new one."""
    begin = time.perf_counter()
    last = run.state.history[-1]
    test_loss, accuracy = _test(run)
    done = EpochDone(last.epoch, last.train_loss, test_loss, accuracy, time.perf_counter() - begin)
    run.state.history[-1] = done
    if run.session.place.rank == 0:
        run.session.tell(done)


def rate(step: int, total_steps: int) -> float:
    """A step's learning rate as a fraction of the peak: a fifth of the steps up from 1/25, then a cosine to
    0."""
    rise = 0.2 * total_steps
    if step < rise:
        return 0.04 + 0.96 * step / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / (total_steps - rise)))


def _bucket_count(model: nn.Module) -> int:
    """How many buckets DDP currently uses, as it reports; 0 without DDP."""
    if not isinstance(model, DistributedDataParallel):
        return 0
    facts = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    # Buckets are rebuilt after the first step; a model with nothing to rebuild keeps the first ones.
    sizes = facts.get("rebuilt_bucket_sizes") or facts.get("bucket_sizes") or ""
    return len([size for size in str(sizes).split(",") if size.strip()])


def device_of(wanted: Device, place: Place) -> torch.device:
    """The device of this rank; assumes that one machine's ranks have consecutive numbers.

    Raises:
        UsageError: "cuda" is wanted and there are fewer GPUs than ranks on this machine.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    gpus, ranks = torch.cuda.device_count(), place.local_world_size
    if gpus >= ranks:
        device = torch.device("cuda", place.rank % ranks)
        torch.cuda.set_device(device)
        return device
    if wanted == "cuda":
        raise UsageError(
            f"rank {place.rank}: --device cuda, but torch sees {gpus} GPUs for {ranks} ranks on this machine.",
            hint="use --device cpu, or launch as many ranks as there are GPUs.",
        )
    return torch.device("cpu")
