"""Trainings in a process group and without DistributedDataParallel: of ranks that each train a model of their own, and
of ranks that share one in another way. Scripts as they are: nothing here knows of pyddpdiag.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 70
SIZE = 32


def train(way: str, rank: int) -> None:
    """A training of two ranks, as the way says."""
    torch.manual_seed(5)
    net: nn.Module = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))
    if way == "prepared":
        if rank == 0:
            train("alone", rank)
        net = DistributedDataParallel(net)
    if way == "sharded":
        fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    if way == "replicate":
        replicate(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(6 + rank)
    for number in range(STEPS):
        loss = _of_a_stage(net, rank) if way == "stages" else net(torch.randn(8, SIZE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if way == "own all-reduces":
            _average(one.grad for one in net.parameters() if one.grad is not None)
        elif way == "own transport":
            _average_past_it(net, f"{way}/{number}", rank)
        if way != "one learner" or rank == 0:
            optimizer.step()
        if way.startswith("averaged weights") and number % int(way.split()[-1]) == 4:
            _average(one.data for one in net.parameters())
        elif way == "loss averaged" and number % 10 == 9:
            dist.all_reduce(loss.detach())


def _of_a_stage(net: nn.Module, rank: int) -> torch.Tensor:
    """The loss of a rank that has a part of the model: the first sends its activations to the second."""
    if rank == 0:
        out: torch.Tensor = net(torch.randn(1, SIZE))
        dist.send(out.detach(), 1)
        return out.square().mean()
    given = torch.empty(1, SIZE)
    dist.recv(given, 0)
    return torch.as_tensor(net(given)).square().mean()


def _average(tensors: Iterable[torch.Tensor]) -> None:
    for one in tensors:
        dist.all_reduce(one)
        one /= dist.get_world_size()


def _average_past_it(net: nn.Module, key: str, rank: int) -> None:
    """As a library with a transport of its own: torch sees no collective."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{key}/{rank}", pickle.dumps([one.grad for one in net.parameters()]))
    both = [pickle.loads(store.get(f"{key}/{other}")) for other in range(2)]
    for one, *grads in zip(net.parameters(), *both, strict=True):
        one.grad = torch.stack(grads).mean(0)


ALONE = ("alone", "loss averaged")
TOGETHER = (
    *("own all-reduces", "own transport", "averaged weights 7", "averaged weights 32", "sharded"),
    *("replicate", "stages", "prepared", "one learner"),
)
