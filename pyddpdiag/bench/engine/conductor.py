"""Rank 0's decisions in a sweep: which cases are set up together, in what order they run, and when to stop."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import psutil

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.plan import Built, Launch, LeftOut, Measured, News, SweepPlan, Traced, share
from pyddpdiag.bench.engine.rank_worker import Order, RankWorker
from pyddpdiag.bench.intervals import shuffled
from pyddpdiag.bench.race import at_a_look, settled

ROUND_S: Final = 0.04
"""A round holds as many steps as fit into this, so that clocks and scheduling weigh little."""
MOST_STEPS: Final = 200
LEAST_ROUNDS: Final = 10
"""A case that cannot have this many rounds within the budget is not begun, unless fewer were asked for."""
MOST_ROUNDS: Final = 1000
"""Of a case in one launch, where only the budget limits them."""
TRACED_STEPS: Final = 12
_LEAST_TRACED: Final = 4
_TRACED_S: Final = 2.0
"""Steps that are so long that fewer of them fill this time are traced fewer times, down to the least."""
_MEMORY_SHARE: Final = 0.4
_TRACE_SHARE: Final = 0.3
# A twin's warm-up and its untimed step.
_BEFORE_TRACE: Final = 3 + 1


@dataclass
class _Open:
    """A case that is set up."""

    index: int
    steps: int
    round_s: float
    traced: int
    trace_s: float
    measured: bool = False


class Conductor:
    """Leads a sweep; see `run`."""

    def __init__(
        self, plan: SweepPlan, launch: Launch, worker: RankWorker, tell: Callable[[News], None]
    ) -> None:
        self._plan, self._launch, self._worker, self._tell = plan, launch, worker, tell
        # One per launch.
        self._order = random.Random(launch.number)
        self._until, self._follow = share(plan, launch, time.time())
        self._free = _MEMORY_SHARE * psutil.virtual_memory().available
        self._single: dict[Case, float] = {}
        self._bytes: dict[str, int] = {}

    def run(self) -> None:
        """Measures in blocks: as many cases as fit into memory take turns, in another order each round."""
        left = deque(self._launch.cases)
        while left:
            block = self._set_up(left)
            if not block:
                break
            # Cases that still wait for memory get their share of the time; those that time has no room for get none.
            waiting = len(left) if self._has_time(block) else 0
            self._measure(block, len(block) / (len(block) + waiting))
            for case in block:
                self._trace(case)
        for index in left:
            self._tell(LeftOut(index, "the budget"))
        self._worker.lead(Order.END)

    def _remaining(self) -> float:
        """Seconds left for measuring in this launch."""
        return self._until - time.time()

    def _set_up(self, left: deque[int]) -> list[_Open]:
        block: list[_Open] = []
        memory = 0
        while left and memory < self._free:
            if not self._has_time(block):
                break
            index = left.popleft()
            twin = self._twin(self._plan.cases[index])
            if twin:
                self._tell(LeftOut(index, twin))
                continue
            self._worker.lead(Order.BUILD, index)
            worker = self._worker.worker(index)
            self._bytes[self._plan.cases[index].model] = 4 * worker.parameters
            self._tell(Built(index, worker.parameters, worker.batch_size, worker.dataset))
            step = self._worker.lead(Order.ROUND, index, 1)
            steps = max(1, min(MOST_STEPS, math.ceil(ROUND_S / max(step, 1e-6))))
            traced = max(_LEAST_TRACED, min(TRACED_STEPS, math.ceil(_TRACED_S / max(step, 1e-6))))
            trace_s = 0.1 + (_BEFORE_TRACE + traced) * step if self._launch.first else 0.0
            case = _Open(index, steps, (steps + 1) * step + 0.005, traced, trace_s)
            memory += worker.bytes * self._plan.cases[index].world_size
            block.append(case)
        return block

    def _has_time(self, block: list[_Open]) -> bool:
        """Whether there is time for one more case beside these, judged by how long they take."""
        wanted = min(LEAST_ROUNDS, self._plan.rounds or LEAST_ROUNDS)
        least = math.ceil(wanted / (1 + self._follow))
        planned = sum(least * case.round_s + case.trace_s for case in block)
        another = planned / len(block) if block else 0.0
        return planned + 1.5 * another <= self._remaining()

    def _twin(self, case: Case) -> str:
        """With a budget: why this case would only measure the same as another one."""
        size = self._bytes.get(case.model, 0) / 2**20
        if self._plan.budget is None or case.bucket_cap_mb is None or not 0 < size <= case.bucket_cap_mb:
            return ""
        same = replace(case, bucket_cap_mb=None)
        if same in self._single:
            return f"one bucket, as with {self._single[same]:g} MiB"
        self._single[same] = case.bucket_cap_mb
        return ""

    def _measure(self, block: list[_Open], share: float) -> None:
        traces = sum(case.trace_s for case in block)
        remaining = self._remaining()
        mine = share * remaining
        # Rounds come first: traces that do not fit into their share of the time are left out.
        end = time.time() + mine - min(traces, _TRACE_SHARE * mine)
        by_name = {str(case.index): case for case in block}
        taken: dict[tuple[int, ...], list[float]] = {}
        most = self._launch.rounds or MOST_ROUNDS
        for count in range(most):
            if self._plan.race and at_a_look(count, most) and settled(taken):
                return
            for name in shuffled(list(by_name), self._order):
                case = by_name[name]
                if time.time() + case.round_s > end:
                    return
                seconds = self._worker.lead(Order.ROUND, case.index, case.steps)
                case.measured = True
                taken.setdefault(self._plan.cases[case.index].picks, []).append(seconds)
                self._tell(Measured(case.index, seconds, case.steps))

    def _trace(self, case: _Open) -> None:
        if not case.measured:
            self._tell(LeftOut(case.index, "the budget"))
        elif (
            self._launch.first
            and self._plan.cases[case.index].kind == "step"
            and case.trace_s < self._remaining()
        ):
            self._worker.lead(Order.TRACE, case.index, case.traced)
            if self._worker.source:
                self._tell(Traced(case.index, self._worker.source))
        self._worker.lead(Order.DROP, case.index)
