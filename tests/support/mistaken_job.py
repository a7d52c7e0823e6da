"""Trainings with the mistakes that people make, each in a run of its own, and some without that look like them. Scripts
as they are: nothing here knows of pyddpdiag.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

EPOCHS, SAMPLES, BATCH = 3, 512, 8


class Net(nn.Module):
    """A body and a head, which some trainings freeze at first."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.drop: nn.Module = nn.Identity()
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A batch's classes."""
        result: torch.Tensor = self.head(self.drop(self.body(x).relu()))
        return result


def train(mistake: str, rank: int, wrapped: Callable[[DistributedDataParallel], object] = id) -> None:
    """A training whose only mistake is this one; "none": without one. `wrapped` gets its DDP module. Checkpoints lie in
    the current folder."""
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(SAMPLES, 6), torch.randint(3, (SAMPLES,)))
    net = Net()
    if mistake == "unfrozen late":
        net.head.weight.requires_grad_(False)
    if mistake == "another split":
        data, _ = random_split(data, [SAMPLES - 64, 64], torch.Generator().manual_seed(rank))
    if "evaluation" in mistake or "dropout" in mistake:
        net.drop = nn.Dropout(0.1)
    ddp = DistributedDataParallel(net, find_unused_parameters=mistake == "head replaced")
    if mistake == "head replaced":
        torch.manual_seed(5 + rank)
        net.head = nn.Linear(16, 3)
    wrapped(ddp)
    if "no hook" in mistake:
        ddp.register_comm_hook(None, noop_hook)
    lr = 0.1 if mistake != "another rate" or rank == 0 else 0.05
    trained = Net() if mistake == "optimizer of another model" else ddp
    optimizer = torch.optim.SGD(trained.parameters(), lr=lr, momentum=0.9)
    if mistake.startswith("state") and (rank == 0 or "all ranks" in mistake):
        optimizer.load_state_dict(_state(optimizer))
    schedule = _schedule(optimizer, mistake) if "schedule" in mistake else None
    sampler: DistributedSampler[int] | None = None
    if not mistake.startswith("same data"):
        sampler = DistributedSampler(data)
    torch.manual_seed(6 + rank)
    order = torch.Generator().manual_seed(6)
    loader = DataLoader(data, BATCH, sampler=sampler, shuffle=sampler is None, generator=order)
    accumulates = 2 if mistake.startswith("no_sync") or mistake == "no no_sync" else 1
    state = copy.deepcopy(optimizer.state_dict())
    for epoch in range(EPOCHS):
        if sampler is not None and mistake != "no set_epoch":
            sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if number == 8 and epoch == 0:
                if mistake == "unfrozen late":
                    net.head.weight.requires_grad_(True)
                if mistake == "changed weights" and rank == 1:
                    with torch.no_grad():
                        net.body.weight.mul_(1.5)
                if mistake == "changed weights of all":
                    with torch.no_grad():
                        net.body.weight.mul_(1.5)
                if mistake.startswith("optimizer state") and (rank == 1 or mistake.endswith("of all")):
                    optimizer.load_state_dict(state)
            last = number % accumulates == accumulates - 1
            if mistake.endswith("zeroed in each pass"):
                optimizer.zero_grad()
            # One off: the first pass is reduced, and the last one is not.
            _pass(ddp, x, y, mistake, last=last != (mistake == "no_sync one off"))
            if "averages" in mistake:
                _average(ddp, mistake)
            if mistake == "zeroed before the step":
                optimizer.zero_grad()
            skips = mistake == "skipped steps of one rank" and rank == 1 and 8 <= number < 12
            if last and not skips:
                optimizer.step()
            if last and (mistake != "zeroed in each epoch" or number == len(loader) - 1):
                optimizer.zero_grad()
            if schedule is not None:
                for _ in range(1 if mistake == "schedule" else dist.get_world_size()):
                    schedule.step()
        if "evaluation" in mistake:
            _evaluate(ddp, data, mistake, rank)
        if mistake == "same checkpoint" or (mistake == "checkpoint of rank 0" and rank == 0):
            torch.save(net.state_dict(), "last.pt")
        elif mistake == "checkpoint of each rank":
            torch.save(net.state_dict(), f"last_{rank}.pt")


def _state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """As of a checkpoint of these parameters."""
    group = optimizer.param_groups[0]
    parameters = [torch.nn.Parameter(each.detach().clone()) for each in group["params"]]
    other = torch.optim.SGD(parameters, lr=group["lr"], momentum=0.9)
    for each in parameters:
        each.grad = torch.full_like(each, 0.1)
    other.step()
    return other.state_dict()


def _schedule(optimizer: torch.optim.Optimizer, mistake: str) -> torch.optim.lr_scheduler.LRScheduler:
    """Down to 0 with the last step of a rank; it steps once for each rank, which some count."""
    steps = EPOCHS * SAMPLES // BATCH // dist.get_world_size()
    if "counted" in mistake:
        steps *= dist.get_world_size()
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))


def _average(ddp: DistributedDataParallel, mistake: str) -> None:
    gradients = [each.grad for each in ddp.parameters() if each.grad is not None]
    if "in one" in mistake:
        gradients = [torch.cat([each.flatten() for each in gradients])]
    for each in gradients:
        dist.all_reduce(each)
        each /= dist.get_world_size()


@torch.no_grad()
def _evaluate(ddp: DistributedDataParallel, data: TensorDataset, mistake: str, rank: int) -> None:
    ddp.eval()
    sampler = None
    part: Dataset[tuple[torch.Tensor, ...]] = data
    if mistake in ("evaluation of parts", "left in evaluation mode"):
        sampler = DistributedSampler(data, shuffle=False)
    elif mistake == "evaluation of own files":
        part = Subset(data, range(rank * SAMPLES // 2, (rank + 1) * SAMPLES // 2))
    right = torch.zeros(())
    for x, y in DataLoader(part, batch_size=BATCH, sampler=sampler):
        right += (ddp.module(x).argmax(1) == y).sum()
    if mistake != "left in evaluation mode":
        ddp.train()


def _pass(
    ddp: DistributedDataParallel, x: torch.Tensor, y: torch.Tensor, mistake: str, *, last: bool
) -> None:
    loss = nn.functional.cross_entropy
    if (mistake.startswith("no_sync") and "around" not in mistake and not last) or mistake.startswith(
        "always no_sync"
    ):
        with ddp.no_sync():
            loss(ddp(x), y).backward()
    elif mistake == "no_sync around backward" and not last:
        value = loss(ddp(x), y)
        with ddp.no_sync():
            value.backward()
    elif mistake == "ddp.module":
        loss(ddp.module(x), y).backward()
    else:
        loss(ddp(x), y).backward()


def train_otherwise(way: str, rank: int) -> None:
    """A training without a mistake, by no ordinary way."""
    torch.manual_seed(5)
    if "network" in way:
        _train_alike(way, rank)
        return
    if "batch" in way:
        _train_on_parts(way, rank)
        return
    ddp = DistributedDataParallel(Net())
    torch.manual_seed(6 + rank)
    body = torch.optim.SGD(ddp.module.body.parameters(), lr=0.1)
    head = torch.optim.SGD(ddp.module.head.parameters(), lr=0.1)
    for number in range(80):
        x, y = torch.randn(BATCH, 6), torch.randint(3, (BATCH,))
        if way.startswith("sharpness"):
            # SAM: there and back; by the gradient of all ranks, or by each rank's own.
            before = _moved(ddp, x, y, synchronised=way == "sharpness")
            nn.functional.cross_entropy(ddp(x), y).backward()
            for parameter, value in zip(ddp.parameters(), before, strict=True):
                parameter.data = value
        else:
            ways = {"averaged weights": "always no_sync", "averaged weights past it": "ddp.module"}
            _pass(ddp, x, y, ways.get(way, "none"), last=True)
        if way == "gradients of inference":
            with torch.inference_mode():
                gradients = [parameter.grad.clone() for parameter in ddp.parameters()]  # type: ignore[union-attr]
            for parameter, gradient in zip(ddp.parameters(), gradients, strict=True):
                parameter.grad = gradient
        if way != "alternating" or number % 4 == 3:
            head.step()
        if way != "alternating" or number % 4 != 3:
            body.step()
        ddp.zero_grad()
        if way.startswith("averaged weights") and number % 10 == 9:
            for parameter in ddp.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()


def _train_alike(way: str, rank: int) -> None:
    """On other data on each rank, which hardly moves the largest gradients: those near the end of the network."""
    layers = [nn.Linear(6, 64), *(layer for _ in range(22) for layer in (nn.ReLU(), nn.Linear(64, 64)))]
    net = nn.Sequential(*(layers if way == "deep network" else layers[:1]), nn.ReLU(), nn.Linear(64, 10))
    if way == "dead network":
        nn.init.constant_(net[0].bias, -1e3)
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    torch.manual_seed(6 + rank)
    for _ in range(80):
        out = ddp(torch.randn(16, 6))
        loss = (
            nn.functional.cross_entropy(out, torch.arange(16) % 10)
            if way == "deep network"
            else (out - 1).square().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _train_on_parts(way: str, rank: int) -> None:
    """Each rank's own part decides, though the ranks have a batch in common, or gradients."""
    ddp = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(SAMPLES, 6), torch.randint(3, (SAMPLES,)))
    fixed = torch.randn(16, 6)
    for x, y in DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(6)):
        optimizer.zero_grad()
        if way == "parts of a batch":
            nn.functional.cross_entropy(ddp(x[rank::2]), y[rank::2]).backward()
        elif way == "parts of a graph of one batch":
            nn.functional.cross_entropy(ddp(fixed)[rank::2], torch.arange(8) % 3).backward()
        elif way == "the fixed batch of a benchmark":
            ddp(fixed).square().mean().backward()
        else:  # "weights and no batch"
            ((ddp(x[rank::2]) * 0).sum() + sum(each.square().sum() for each in ddp.parameters())).backward()
        optimizer.step()


def _moved(
    ddp: DistributedDataParallel, x: torch.Tensor, y: torch.Tensor, *, synchronised: bool
) -> list[torch.Tensor]:
    """Moves the weights up the gradient; returns what they were."""
    _pass(ddp, x, y, "none" if synchronised else "always no_sync", last=True)
    before = [parameter.detach().clone() for parameter in ddp.parameters()]
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.add_(parameter.grad, alpha=0.05)  # type: ignore[arg-type]
    ddp.zero_grad()
    return before


OTHER_WAYS = (
    *("sharpness", "sharpness of each rank", "averaged weights", "averaged weights past it"),
    *("alternating", "gradients of inference", "deep network", "dead network", "parts of a batch"),
    *("parts of a graph of one batch", "the fixed batch of a benchmark", "weights and no batch"),
)

MISTAKES = {
    "none": "",
    "no_sync": "",
    "same data": "same_data",
    "same data and dropout": "same_data",
    "unfrozen late": "unreduced_parameters",
    "always no_sync": "unreduced_parameters",
    "ddp.module": "unreduced_parameters",
    "another rate": "different_weights",
    "changed weights": "different_weights",
    "changed weights of all": "",
    "optimizer state of one rank": "different_weights",
    "optimizer state of all": "",
    "skipped steps of one rank": "different_weights",
    "no no_sync": "missing_no_sync",
    "no_sync around backward": "missing_no_sync",
    "no_sync one off": "unreduced_parameters",
    "no_sync, zeroed in each pass": "gradients_cleared",
    "zeroed in each epoch": "gradients_cleared",
    "head replaced": "unreduced_parameters",
    "another split": "different_splits",
    "averages": "averaged_twice",
    "averages in one": "averaged_twice",
    "always no_sync, and averages by hand": "",
    "averages, and no hook of DDP's does": "",
    "optimizer of another model": "weights_unchanged",
    "zeroed before the step": "weights_unchanged",
    "schedule": "",
    "schedule of each rank": "schedule_ended",
    "schedule of each rank, counted so": "",
    "state on rank 0": "different_weights",
    "state on all ranks": "",
    "no set_epoch": "epoch_not_set",
    "full evaluation": "full_evaluation",
    "evaluation of parts": "",
    "evaluation of own files": "",
    "left in evaluation mode": "left_in_eval",
    "same checkpoint": "same_checkpoint",
    "checkpoint of rank 0": "",
    "checkpoint of each rank": "",
}
"""The kind of finding that each mistake leads to."""

ADVISED = {
    "same data": ("none", "DistributedSampler(dataset,"),
    "same data and dropout": ("none", "DistributedSampler(dataset,"),
    "unfrozen late": ("none", "Change the model first, then wrap it"),
    "always no_sync": ("no_sync", "no_sync"),
    "no_sync one off": ("no_sync", "Leave only the last pass"),
    "averages": ("none", "Leave these all-reduces out"),
    "averages in one": ("none", "Leave these all-reduces out"),
    "optimizer of another model": ("none", "after the last change of the model"),
    "zeroed before the step": ("none", "Call optimizer.zero_grad() before the forward pass"),
    "schedule of each rank": ("schedule of each rank, counted so", "Give the scheduler as many steps"),
    "state on rank 0": ("state on all ranks", "Load the optimizer's state on every rank"),
    "ddp.module": ("none", "ddp"),
    "changed weights": ("changed weights of all", "Do it on every rank by the same numbers"),
    "optimizer state of one rank": ("optimizer state of all", "an optimizer's state that one rank loads"),
    "skipped steps of one rank": ("none", "Let all ranks step alike"),
    "another rate": ("none", "the same settings"),
    "no no_sync": ("no_sync", "no_sync()"),
    "no_sync around backward": ("no_sync", "no_sync()"),
    "no_sync, zeroed in each pass": ("no_sync", "only after optimizer.step()"),
    "zeroed in each epoch": ("none", "Call optimizer.zero_grad() in each step"),
    "another split": ("none", "random_split(data, lengths, generator="),
    "no set_epoch": ("none", "sampler.set_epoch(epoch)"),
    "full evaluation": ("evaluation of parts", "DistributedSampler(dataset, shuffle=False)"),
    "left in evaluation mode": ("evaluation of parts", ".train()"),
    "same checkpoint": ("checkpoint of rank 0", "rank"),
}
"""What each mistake is to become by the advice, and the words of the advice that say so."""

EVEN_UNATTACHED = ("same data", "unfrozen late", "another rate", "no no_sync")
"""What a hook that the script registers itself finds, too."""
