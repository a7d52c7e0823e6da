"""Rank 0's decisions in a sweep: which cases are set up together, in what order they run, and when to stop."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import psutil

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.control import Order
from pyddpdiag.bench.engine.news import Built, LeftOut, Measured, News, Traced
from pyddpdiag.bench.engine.settings import SweepSettings
from pyddpdiag.bench.engine.sittings import share
from pyddpdiag.bench.intervals import shuffled
from pyddpdiag.bench.race import LONGEST, at_a_look, settled

if TYPE_CHECKING:
    from pyddpdiag.bench.engine.rank import Seat

ROUND_S: Final = 0.04
"""A round holds as many steps as fit into this, so that clocks and scheduling weigh little."""
MOST_STEPS: Final = 200
LEAST_ROUNDS: Final = 10
"""A case that cannot have this many rounds within the budget is not begun."""
MOST_ROUNDS: Final = 1000
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

    def __init__(self, settings: SweepSettings, seat: Seat, tell: Callable[[News], None]) -> None:
        self._settings, self._seat, self._tell = settings, seat, tell
        # Of each sitting its own.
        self._order = random.Random(1000 * settings.seed + settings.sitting)
        self._until, self._follow = share(settings, time.time())
        self._free = _MEMORY_SHARE * psutil.virtual_memory().available
        self._single: dict[Case, float] = {}
        self._bytes: dict[str, int] = {}

    def run(self) -> None:
        """Measures in blocks: as many cases as memory holds at once take turns, in each round in another order."""
        left = deque(i for i in range(len(self._settings.cases)) if i not in self._settings.skip)
        while left:
            block = self._set_up(left)
            if not block:
                break
            # Cases that memory has no room for yet get their part; for those that time has none for, none is left.
            waiting = len(left) if self._has_time(block) else 0
            self._measure(block, len(block) / (len(block) + waiting))
            for case in block:
                self._trace(case)
        for index in left:
            self._tell(LeftOut(index, "the budget"))
        self._seat.lead(Order.END)

    def _remaining(self) -> float:
        """Seconds that are left for measuring in this sitting."""
        return self._until - time.time()

    def _set_up(self, left: deque[int]) -> list[_Open]:
        block: list[_Open] = []
        memory = 0
        while left and memory < self._free:
            if not self._has_time(block):
                break
            index = left.popleft()
            twin = self._twin(self._settings.cases[index])
            if twin:
                self._tell(LeftOut(index, twin))
                continue
            self._seat.lead(Order.BUILD, index)
            worker = self._seat.worker(index)
            self._bytes[self._settings.cases[index].model] = 4 * worker.parameters
            self._tell(Built(index, worker.parameters, worker.batch_size, worker.dataset))
            step = self._seat.lead(Order.ROUND, index, 1)
            steps = max(1, min(MOST_STEPS, math.ceil(ROUND_S / max(step, 1e-6))))
            traced = max(_LEAST_TRACED, min(TRACED_STEPS, math.ceil(_TRACED_S / max(step, 1e-6))))
            trace_s = 0.1 + (_BEFORE_TRACE + traced) * step if self._settings.sitting == 0 else 0.0
            case = _Open(index, steps, (steps + 1) * step + 0.005, traced, trace_s)
            memory += worker.bytes * self._settings.cases[index].world_size
            block.append(case)
        return block

    def _has_time(self, block: list[_Open]) -> bool:
        """Whether there is time for one more case beside these, by what they take."""
        least = math.ceil(LEAST_ROUNDS / (1 + self._follow))
        planned = sum(least * case.round_s + case.trace_s for case in block)
        another = planned / len(block) if block else 0.0
        return planned + 1.5 * another <= self._remaining()

    def _twin(self, case: Case) -> str:
        """With a budget, why this case would only measure what another one does."""
        size = self._bytes.get(case.model, 0) / 2**20
        if (
            self._settings.budget_s is None
            or case.bucket_cap_mb is None
            or not 0 < size <= case.bucket_cap_mb
        ):
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
        # Rounds come first: traces that don't fit into their part are left out.
        end = time.time() + mine - min(traces, _TRACE_SHARE * mine)
        most = self._settings.rounds if math.isinf(remaining) else MOST_ROUNDS
        if self._settings.race:
            most = LONGEST * self._settings.rounds
        by_name = {str(case.index): case for case in block}
        taken: dict[tuple[int, ...], list[float]] = {}
        for count in range(most):
            if self._settings.race and at_a_look(count, self._settings.rounds) and settled(taken):
                return
            for name in shuffled(list(by_name), self._order):
                case = by_name[name]
                if time.time() + case.round_s > end:
                    return
                seconds = self._seat.lead(Order.ROUND, case.index, case.steps)
                case.measured = True
                taken.setdefault(self._settings.cases[case.index].picks, []).append(seconds)
                self._tell(Measured(case.index, seconds, case.steps))

    def _trace(self, case: _Open) -> None:
        if not case.measured:
            self._tell(LeftOut(case.index, "the budget"))
        elif (
            self._settings.sitting == 0
            and self._settings.cases[case.index].kind == "step"
            and case.trace_s < self._remaining()
        ):
            self._seat.lead(Order.TRACE, case.index, case.traced)
            if self._seat.source:
                self._tell(Traced(case.index, self._seat.source))
        self._seat.lead(Order.DROP, case.index)
