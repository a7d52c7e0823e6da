"""Training with a recorder in the two ways there are, and short ways to look into its trace."""

import itertools
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Kind, Records
from pyddpdiag.trace.reader import RankTrace, is_in_flight
from support.models import batch

WAYS = ("native", "timed")


def register(recorder: pyddpdiag.Recorder, ddp: DistributedDataParallel, way: str) -> None:
    """Puts the recorder's hook into a DDP module."""
    if way == "native":
        recorder.attach(ddp)
    else:
        ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)


def backward(ddp: DistributedDataParallel, rank: int, step: int, dtype: torch.dtype = torch.float32) -> None:
    """One forward and backward pass, with another batch for every rank and step."""
    ddp(batch(rank, step, dtype)).square().mean().backward()


def train(ddp: DistributedDataParallel, rank: int, steps: int, dtype: torch.dtype = torch.float32) -> None:
    """Passes without an optimizer."""
    for step in range(steps):
        ddp.zero_grad()
        backward(ddp, rank, step, dtype)


def complete(trace: RankTrace, kind: Kind) -> Records:
    """A rank's records of one kind, of which none may be in flight."""
    records = trace.of_kind(kind)
    assert not is_in_flight(records).any(), f"rank {trace.rank}: {kind.name} in flight"
    return records


def times(records: Records, column: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One column of times, each of which must have been seen."""
    column_times: np.ndarray[Any, np.dtype[np.int64]] = np.asarray(records["times"][:, column])
    assert (column_times > 0).all(), f"time {column!r} not seen in {np.flatnonzero(column_times == 0)}"
    return column_times


def in_order(records: Records, *columns: int) -> None:
    """All these times were seen, and none is before the one to its left."""
    for first, second in itertools.pairwise(columns):
        assert (times(records, first) <= times(records, second)).all(), (first, second)
