"""How the ranks of a trial decide alike: each brings its numbers, rank 0 decides, all read the decision.

It goes over the group's store and not over the training's group. A rank may never come: it trains no more, or runs this
forward pass alone. So nobody waits for good: who has waited long enough writes, in place of a decision, that there is
none. The store takes the first of the two for all ranks, those that come later too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag.paths import gloo, processes

WAIT_S: Final = 10.0
"""For the others to come to where a trial may change something. None has begun anything by then that cannot wait."""

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.01
_LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True)
class Decided:
    """What all ranks read.

    Attributes:
        value: the decision.
        why_not: why there is none; empty: there is one.
    """

    value: Any
    why_not: str = ""


class Agreement:
    """The ranks of one group, for one trial. They meet equally often; making one waits for nobody.

    Args:
        group: all of its ranks make one.
        name: of this trial among all that use the group's store; the same on all ranks.
    """

    def __init__(self, group: dist.ProcessGroup, name: str) -> None:
        self._group = group
        self._limit_s = float(gloo.options_of(group)._timeout.total_seconds())
        self._count = 0
        self._store: Store = PrefixStore(f"pyddpdiag/trial/{name}", group.get_group_store())
        self._processes: list[processes.Identity] = []

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one, as far as they have met."""
        machines = {each["machine"] for each in self._processes}
        return len(machines) == 1 and "" not in machines

    def meet(self, ours: Any) -> Decided:
        """The first meeting: what each rank brings, in the order of the ranks."""
        decided = self.decide({"process": processes.ours(), "ours": ours}, lambda brought: brought)
        if decided.why_not:
            return decided
        self._processes = [each["process"] for each in decided.value]
        return Decided([each["ours"] for each in decided.value])

    def decide(self, ours: Any, decision: Callable[[list[Any]], Any], *, surely: bool = False) -> Decided:
        """What rank 0 decides, or that nothing is decided: the same on all ranks.

        Args:
            ours: of this rank, as JSON can hold it.
            decision: on rank 0, from what all ranks have brought.
            surely: all ranks are here, so that they are waited for as in an all-reduce.
        """
        turn, self._count = self._count, self._count + 1
        rank, decided = self._group.rank(), f"{turn}/decided"
        until = time.monotonic() + (self._limit_s if surely else min(WAIT_S, self._limit_s))
        keys = [f"{turn}/{each}" for each in range(self._group.size())]
        try:
            self._store.set(keys[rank], json.dumps(ours))
            why_not = self._wait(keys if rank == 0 else [], decided, until)
            value = None
            if rank == 0 and not why_not and not self._store.check([decided]):
                value = decision([json.loads(self._store.get(key)) for key in keys])
            if rank == 0 or why_not:
                proposal = json.dumps({"value": value, "why_not": why_not})
                found = self._store.compare_set(decided, "", proposal)
            else:
                found = self._store.get(decided)
            return Decided(**json.loads(found))
        except RuntimeError as error:  # nobody gets an answer any more
            return Decided(None, f"the store of the process group does not answer: {error}")

    def _wait(self, keys: list[str], decided: str, until: float) -> str:
        """Waits for these keys, or if there are none for the decision; why in vain, or ""."""
        look_at, pause = time.monotonic() + _LOOK_EVERY_S, _FIRST_PAUSE_S
        while not self._store.check([decided]) and not (keys and self._store.check(keys)):
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_EVERY_S
                for rank, process in enumerate(self._processes):
                    if processes.has_ended(process):
                        return f"rank {rank} (process {process['process']}) has ended"
            if now > until:
                missing = [key.partition("/")[2] for key in keys if not self._store.check([key])]
                names = ", ".join(missing) or "0"
                return f"rank {names} did not come to where the ranks of a trial meet"
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return ""
