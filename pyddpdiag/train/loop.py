"""The training loop of one rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.errors import TrainError
from pyddpdiag.train.cores import threads_per_rank
from pyddpdiag.train.data import Digits, ShardedBatches, load_digits, share, steps_per_epoch
from pyddpdiag.train.events import EpochDone, Event, Planned, StepDone, TrainResult
from pyddpdiag.train.models import DigitsNet
from pyddpdiag.train.probes import Probe, probes
from pyddpdiag.train.rendezvous import Place
from pyddpdiag.train.settings import TrainSettings

_STEP_EVENT_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Session:
    """What a rank's job is given once its process group is up. `tell` passes an event to whoever watches."""

    settings: TrainSettings
    place: Place
    trace: str | None
    tell: Callable[[Event], None]
    #: Replaceable, so that another data set or model can be trained by the same loop.
    load: Callable[[], Digits] = field(default=load_digits)
    build: Callable[[], nn.Module] = field(default=DigitsNet)


def train_rank(session: Session) -> TrainResult:
    """Trains on this rank to the end; all ranks of the default process group must call it."""
    settings, place = session.settings, session.place
    threads = threads_per_rank(place.local_world_size)
    torch.set_num_threads(threads)
    torch.manual_seed(settings.seed)
    digits = session.load()
    settings.check_world(place.world_size, len(digits.train_labels))
    model = DistributedDataParallel(session.build(), bucket_cap_mb=settings.bucket_cap_mb)
    parameters = sum(p.numel() for p in model.parameters())
    if place.rank == 0:
        session.tell(_plan(session, digits, parameters, threads))
    with probes(model, settings.hook, session.trace, settings.force) as probe:
        begin = time.perf_counter()
        history = _epochs(session, digits, model, probe)
        seconds = time.perf_counter() - begin
    return TrainResult(
        world_size=place.world_size,
        hook=settings.hook.value,
        trace=session.trace,
        parameters=parameters,
        buckets=_bucket_count(model),
        history=tuple(history),
        seconds=seconds,
    )


def _plan(session: Session, digits: Digits, parameters: int, threads: int) -> Planned:
    settings, world_size = session.settings, session.place.world_size
    shares = (share(settings.batch_size, world_size, rank) for rank in range(world_size))
    return Planned(
        world_size=world_size,
        train_samples=len(digits.train_labels),
        test_samples=len(digits.test_labels),
        shares=tuple(part.stop - part.start for part in shares),
        epochs=settings.epochs,
        steps_per_epoch=steps_per_epoch(len(digits.train_labels), settings.batch_size),
        parameters=parameters,
        threads=threads,
        trace=session.trace,
    )


def _epochs(
    session: Session, digits: Digits, model: DistributedDataParallel, probe: Probe
) -> list[EpochDone]:
    settings, place = session.settings, session.place
    steps = steps_per_epoch(len(digits.train_labels), settings.batch_size)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=settings.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    total = settings.epochs * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate(step, total))
    history = []
    for epoch in range(settings.epochs):
        begin = time.perf_counter()
        batches = ShardedBatches(
            digits.train_images,
            digits.train_labels,
            settings.batch_size,
            place.world_size,
            place.rank,
            settings.seed,
            epoch,
        )
        told = -math.inf
        loss_sum = 0.0
        for step, (images, labels) in enumerate(probe.steps(batches)):
            optimiser.zero_grad()
            # DDP averages over the ranks; shares may differ by one sample, so each rank divides by the mean
            # share.
            summed = functional.cross_entropy(model(images), labels, reduction="sum")
            torch.autograd.backward(summed * (place.world_size / settings.batch_size))
            optimiser.step()
            schedule.step()
            loss_sum += summed.item()
            now = time.monotonic()
            if place.rank == 0 and (now - told >= _STEP_EVENT_INTERVAL_S or step + 1 == steps):
                session.tell(StepDone(epoch, step, summed.item() / len(labels)))
                told = now
        train_loss = _total(loss_sum)[0] / (steps * settings.batch_size)
        test_loss, accuracy = _evaluate(model.module, digits, place)
        if not math.isfinite(train_loss):
            raise TrainError(
                f"The training loss became {train_loss} in epoch {epoch + 1}.", hint="lower --lr."
            )
        history.append(EpochDone(epoch, train_loss, test_loss, accuracy, time.perf_counter() - begin))
        if place.rank == 0:
            session.tell(history[-1])
    return history


def rate(step: int, total: int) -> float:
    """A step's learning rate as a part of the peak: a fifth of the steps up from 1/25, then a cosine to 0."""
    rise = 0.2 * total
    if step < rise:
        return 0.04 + 0.96 * step / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / (total - rise)))


@torch.no_grad()
def _evaluate(model: nn.Module, digits: Digits, place: Place) -> tuple[float, float]:
    """Mean loss and accuracy over the test set, of which every rank does its share."""
    part = share(len(digits.test_labels), place.world_size, place.rank)
    labels = digits.test_labels[part]
    scores = model(digits.test_images[part])
    loss = functional.cross_entropy(scores, labels, reduction="sum").item()
    correct = int((scores.argmax(1) == labels).sum())
    totals = _total(loss, correct)
    return totals[0] / len(digits.test_labels), totals[1] / len(digits.test_labels)


def _total(*values: float) -> list[float]:
    """The sums of the values over all ranks, in double precision."""
    totals: Tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(totals)
    sums: list[float] = totals.tolist()
    return sums


def _bucket_count(model: DistributedDataParallel) -> int:
    """How many buckets DDP uses now, by its own account."""
    facts = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    # Buckets are rebuilt after the first step; a model with nothing to rebuild keeps the first ones.
    sizes = facts.get("rebuilt_bucket_sizes") or facts.get("bucket_sizes") or ""
    return len([size for size in str(sizes).split(",") if size.strip()])
