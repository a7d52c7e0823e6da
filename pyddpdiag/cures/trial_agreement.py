"""How the ranks of a trial decide alike: each brings its numbers, rank 0 decides, all read the decision.

It goes over the group's store and not over the training's group, and it never waits for good: a rank of this machine
that has ended is noticed at once, any other after the group's own time limit, as in an all-reduce.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag.errors import ReductionError
from pyddpdiag.paths import gathering, gloo, processes

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.01
_LOOK_EVERY_S: Final = 0.1


class Agreement:
    """The ranks of one group, for one trial.

    Args:
        group: all of its ranks make one, together.
        number: of this trial among those of the group.
        ours: what this rank brings to the first meeting.

    Attributes:
        brought: what each rank brought there.

    Raises:
        ReductionError: not all ranks came within the group's time limit, or one has ended.
    """

    def __init__(self, group: dist.ProcessGroup, number: int, ours: dict[str, Any]) -> None:
        self._group = group
        self._limit_s = float(gloo.options_of(group)._timeout.total_seconds())
        self._count = 0
        store = PrefixStore(f"pyddpdiag/trial/{number}", group.get_group_store())
        until = time.monotonic() + self._limit_s
        mine = json.dumps({"process": processes.ours(), "ours": ours})
        try:
            with gathering.meet(store, mine, group, until) as meeting:
                self._store: Store = meeting.store
                all_ranks = [json.loads(value) for value in meeting.values]
                meeting.swap("met", "met")
        except RuntimeError as error:
            raise self._lost("begin a trial", str(error)) from error
        self._processes: list[processes.Identity] = [each["process"] for each in all_ranks]
        self.brought: list[dict[str, Any]] = [each["ours"] for each in all_ranks]
        machines = {each["machine"] for each in self._processes}
        self.one_host = len(machines) == 1 and "" not in machines

    def decide(self, what: str, ours: Any, decision: Callable[[list[Any]], Any]) -> Any:
        """Waits for the decision of rank 0.

        Args:
            what: for the message of an error: what the ranks do together.
            ours: of this rank, as JSON can hold it.
            decision: on rank 0, from what all ranks have brought.

        Returns:
            The decision, the same on all ranks.

        Raises:
            ReductionError: a rank has ended, or did not come within the group's time limit.
        """
        turn, self._count = self._count, self._count + 1
        ranks = range(self._group.size())
        decided = f"{turn}/decided"
        try:
            if self._group.rank() == 0:
                others = [f"{turn}/{rank}" for rank in ranks if rank]
                self._wait(what, others)
                brought = [ours, *(json.loads(self._store.get(key)) for key in others)]
                text = json.dumps(decision(brought))
                self._store.set(decided, text)
                return json.loads(text)
            self._store.set(f"{turn}/{self._group.rank()}", json.dumps(ours))
            self._wait(what, [decided])
            return json.loads(self._store.get(decided))
        except RuntimeError as error:
            if isinstance(error, ReductionError):
                raise
            raise self._lost(what, f"their store does not answer: {error}") from error

    def _wait(self, what: str, keys: list[str]) -> None:
        until = time.monotonic() + self._limit_s
        look_at, pause = time.monotonic() + _LOOK_EVERY_S, _FIRST_PAUSE_S
        while keys and not self._store.check(keys):
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_EVERY_S
                for rank, process in enumerate(self._processes):
                    if processes.has_ended(process):
                        raise self._lost(what, f"rank {rank} (process {process['process']}) has ended")
            if now > until:
                missing = [key.partition("/")[2] for key in keys if not self._store.check([key])]
                names = "rank 0" if missing == ["decided"] else "ranks " + ", ".join(missing)
                raise self._lost(what, f"nothing came from {names} within {self._limit_s:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _lost(self, what: str, why: str) -> ReductionError:
        return ReductionError(
            f"rank {dist.get_rank()}: the ranks of a trial of cures cannot {what}: {why}",
            hint="all ranks must run the same passes; the sidecar says which cure was on.",
        )


__all__ = ["Agreement"]
