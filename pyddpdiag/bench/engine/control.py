"""How rank 0 leads the others through a sweep, and how a rank notices a hang."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import torch
import torch.distributed as dist

from pyddpdiag.ranks.deadline import deadline
from pyddpdiag.ranks.events import Event
from pyddpdiag.ranks.failure import Failure

# A round may take this many times the longest so far, and at least this many seconds.
_LIMIT_ROUNDS = 20.0
_LEAST_LIMIT_S = 20.0


class Order(IntEnum):
    """What all ranks do next."""

    END = 0
    BUILD = 1
    ROUND = 2
    TRACE = 3
    DROP = 4


class Control:
    """The default process group as a command channel. Every order reaches every rank, idle ones too.

    Args:
        rank: of this process.
        timeout_s: for orders of unknown length (setting up).
        tell: called with the report of a hang, before this process ends itself.
    """

    def __init__(self, rank: int, timeout_s: float, tell: Callable[[Event], None]) -> None:
        self._rank, self._timeout_s, self._tell = rank, timeout_s, tell
        self._longest_s = 0.0

    def share(self, order: Order, case: int, steps: int) -> tuple[Order, int, int]:
        """Returns rank 0's order; what other ranks pass is ignored."""
        order_case_steps = torch.tensor([order, case, steps])
        with self.limited(self.limit_s, "waiting for rank 0's next order"):
            dist.broadcast(order_case_steps, 0)
        first, second, third = order_case_steps.tolist()
        return Order(first), second, third

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values."""
        value = torch.tensor(seconds, dtype=torch.float64)
        with self.limited(self.limit_s, "waiting for the others at the end of a round"):
            dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    def total(self, seconds: float) -> float:
        """The sum of all ranks' values."""
        value = torch.tensor(seconds, dtype=torch.float64)
        with self.limited(self.limit_s, "waiting for the others at the end"):
            dist.all_reduce(value)
        return float(value.item())

    @property
    def limit_s(self) -> float:
        """How long a round may take."""
        return max(_LEAST_LIMIT_S, _LIMIT_ROUNDS * self._longest_s) if self._longest_s else self._timeout_s

    def took(self, seconds: float) -> None:
        """Learns how long a round took."""
        self._longest_s = max(self._longest_s, seconds)

    @contextmanager
    def limited(self, seconds: float, doing: str) -> Iterator[None]:
        """Ends this process if the block takes longer: nothing else interrupts a hang in Gloo."""

        def expired() -> None:
            self._tell(
                Failure(
                    rank=self._rank,
                    kind="SweepTimeout",
                    message=f"stuck for {seconds:.0f} s in {doing}.",
                    timeout=True,
                )
            )
            os._exit(2)

        with deadline(seconds, expired):
            yield
