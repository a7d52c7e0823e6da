"""The digits trained by `pyddpdiag train`'s loop and by the same loop written by hand, in a process that is a rank."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from harness.ranks import join
from pyddpdiag.bench.intervals import interleave
from pyddpdiag.train.data import load_digits
from pyddpdiag.train.loop import Session, rate, train_rank
from pyddpdiag.train.models import DigitsNet
from pyddpdiag.train.rendezvous import FileTarget, Place
from pyddpdiag.train.settings import HookKind, TrainSettings

SETTINGS = TrainSettings(epochs=1, batch_size=64, hook=HookKind.PLAIN)


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


def measure(rank: int, world_size: int, meeting: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of one epoch by each variant in each round; every rank runs this with the same arguments."""
    join(rank, world_size, meeting)
    place = Place(rank, world_size, world_size, FileTarget(meeting))
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
        seconds, last_losses["by hand"] = by_hand(rank, world_size)
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        variants = {
            "by hand": hand,
            "plain": ours(HookKind.PLAIN, folder),
            "native": ours(HookKind.NATIVE, folder),
        }
        for variant in variants.values():
            variant()
        measured = interleave(variants, rounds)
    dist.destroy_process_group()
    # The same training, or the times say nothing.
    for name, loss in last_losses.items():
        if not math.isclose(loss, last_losses["by hand"], rel_tol=1e-3):
            raise ValueError(f"{name} has the loss {loss}, by hand it is {last_losses['by hand']}")
    return measured


def make_photos(folder: Path, per_class: int, side: int = 320) -> None:
    """Two classes of JPEG files of `side` x `side` pixels."""
    random = np.random.default_rng(3)
    for name in ("one", "two"):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(per_class):
            coarse = random.integers(0, 255, (20, 20, 3), np.uint8)
            Image.fromarray(coarse).resize((side, side)).save(folder / "train" / name / f"{number}.jpg")


def loader_share(
    rank: int, world_size: int, meeting: str, folder: str, workers: int
) -> tuple[float, float, int]:
    """Seconds waited for data, seconds in all, and images of one epoch of ResNet-18 at 64 pixels."""
    join(rank, world_size, meeting)
    settings = replace(
        SETTINGS,
        arch="resnet18",
        data=folder,
        image_size=64,
        batch_size=16,
        workers=workers,
        bucket_cap_mb=25,
    )
    place = Place(rank, world_size, world_size, FileTarget(meeting))
    result = train_rank(Session(settings, place, None, lambda event: None))
    dist.destroy_process_group()
    return result.data_wait_s, result.seconds, result.steps * result.batch_size
