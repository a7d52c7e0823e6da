"""The digits trained by `pyddpdiag train`'s loop and by the same loop written by hand, in a process that is a rank."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from harness.rounds import interleave
from pyddpdiag.ranks import session as ranks
from pyddpdiag.train import HookKind, TrainSettings
from pyddpdiag.train.loop import rate, train_rank
from pyddpdiag.train.rank_session import Session
from pyddpdiag.workloads.networks import DigitsNet
from pyddpdiag.workloads.workload import load_digits

SETTINGS = TrainSettings(epochs=1, batch_size=64, hook=HookKind.PLAIN)
BY_HAND = "by hand"


def by_hand(rank: int, world_size: int) -> tuple[float, float]:
    """Seconds of one epoch with its test, and its mean loss, of the loop that anybody would write."""
    torch.manual_seed(SETTINGS.seed)
    digits = load_digits()
    model = DistributedDataParallel(DigitsNet(), bucket_cap_mb=SETTINGS.bucket_cap_mb)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=SETTINGS.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    size = SETTINGS.batch_size
    mine = size // world_size
    begin = time.perf_counter()
    order = torch.from_numpy(
        np.random.Generator(np.random.PCG64([0, 0])).permutation(len(digits.train_labels))
    )
    steps = len(order) // size
    losses = torch.zeros(1, dtype=torch.float64)
    for step in range(steps):
        chosen = order[step * size + rank * mine : step * size + (rank + 1) * mine]
        for group in optimiser.param_groups:
            group["lr"] = SETTINGS.lr * rate(step, steps)
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(digits.train_images[chosen]), digits.train_labels[chosen])
        loss.backward()
        optimiser.step()
        losses += loss.item() / steps
    with torch.no_grad():
        part = slice(rank, None, world_size)
        right = model.module(digits.test_images[part]).argmax(1) == digits.test_labels[part]
        correct = right.sum()
    dist.all_reduce(correct)
    dist.all_reduce(losses)
    return time.perf_counter() - begin, losses.item() / world_size


def measure(rank: ranks.Session, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of one epoch by each variant (`by hand` or a hook) in each round; the same arguments on all ranks."""
    place = rank.place
    last_losses = {}

    def ours(hook: HookKind, folder: str) -> Callable[[], float]:
        count = iter(range(10**6))

        def run() -> float:
            trace = str(Path(folder, f"{hook.value}-{next(count)}")) if hook.records else None
            session = Session(replace(SETTINGS, hook=hook), place, trace, lambda event: None)
            result = train_rank(session)
            last_losses[hook.value] = result.history[-1].train_loss
            return result.seconds

        return run

    def hand() -> float:
        seconds, last_losses[BY_HAND] = by_hand(place.rank, place.world_size)
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        variants = {name: hand if name == BY_HAND else ours(HookKind(name), folder) for name in names}
        for variant in variants.values():
            variant()
        measured = interleave(variants, rounds)
    # The same training, or the times say nothing.
    first, *others = last_losses.items()
    for name, loss in others:
        if not math.isclose(loss, first[1], rel_tol=1e-3):
            raise ValueError(f"{name} has the loss {loss}, {first[0]} has {first[1]}")
    return measured


def make_photos(folder: Path, per_class: int) -> None:
    """Two classes of JPEG files of 320 x 320 pixels."""
    random = np.random.default_rng(3)
    for name in ("one", "two"):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(per_class):
            coarse = random.integers(0, 255, (20, 20, 3), np.uint8)
            Image.fromarray(coarse).resize((320, 320)).save(folder / "train" / name / f"{number}.jpg")


@dataclass(frozen=True)
class Loading:
    """Epochs of one number of workers: seconds of each, seconds of them that waited for data, and images."""

    seconds: list[float]
    waited: list[float]
    images: int


def loader_shares(
    rank: ranks.Session, folder: str, workers: Sequence[int], rounds: int
) -> dict[int, Loading]:
    """Epochs of ResNet-18 at 64 pixels by each number of workers, interleaved after one to warm up."""
    waited: dict[int, list[float]] = {number: [] for number in workers}
    images = {}

    def epoch(number: int) -> float:
        settings = replace(
            SETTINGS,
            arch="resnet18",
            data=folder,
            image_size=64,
            batch_size=16,
            workers=number,
            bucket_cap_mb=25,
        )
        result = train_rank(Session(settings, rank.place, None, lambda event: None))
        waited[number].append(result.data_wait_s)
        images[number] = result.steps * result.batch_size
        return result.seconds

    for number in workers:
        epoch(number)
        waited[number].clear()
    measured = interleave({str(number): partial(epoch, number) for number in workers}, rounds)
    return {number: Loading(measured[str(number)], waited[number], images[number]) for number in workers}
