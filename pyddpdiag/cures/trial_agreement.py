"""How the ranks of a trial decide alike: each brings its numbers, rank 0 decides, all read the decision.

It goes over the group's store and not over the training's group. A rank may never come: it trains no more, or runs this
forward pass alone. So nobody waits for good: who has waited long enough writes, in place of a decision, that there is
none. The store takes the first of the two for all ranks, those that come later too.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from pyddpdiag import _native
from pyddpdiag.model.tried import TODAY, Block
from pyddpdiag.paths import gloo, processes
from pyddpdiag.system.clock import monotonic_ns

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

    `group`: all of its ranks make one. `name`: of this trial among all that use the group's store; the same on all
    ranks.
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


class Measured:
    """The steps of the block that is on, each from one forward pass between two passes to the next one.

    `module`: as the recorder knows it.
    """

    def __init__(self, module: _native.Module, core: _native.Recorder) -> None:
        self._module, self._core = module, core
        self._last_step = 0
        self.latest_s = 0.0
        """Of the latest step."""
        self.begins()
        self.goes_on()

    def begins(self) -> None:
        """Another block."""
        self._steps_s: list[float] = []
        self._waits_s: list[float] = []
        self._first = self._last = 0

    def step(self, *, counts: bool) -> None:
        """A step is over."""
        now, step = monotonic_ns(), self._core.current_step
        self.latest_s = (now - self._seen_ns) / 1e9
        if counts:
            self._steps_s.append(self.latest_s)
            self._waits_s.append((self._module.waited_ns - self._waited_ns) / 1e9)
            self._first = self._first or self._last_step
            self._last = step
        self._last_step = step

    def goes_on(self) -> None:
        """What the trial itself took belongs to no step."""
        self._seen_ns, self._waited_ns = monotonic_ns(), self._module.waited_ns

    def numbers(self) -> dict[str, Any] | None:
        """Of the block, as JSON can hold them; None: no step was counted."""
        if not self._steps_s:
            return None
        step_s = median(self._steps_s)
        # Of normal steps, the median deviation is 0.674 standard deviations.
        spread = median(abs(each / step_s - 1) for each in self._steps_s) / 0.674
        return {
            "step_s": step_s,
            "exposed_s": median(self._waits_s),
            "passes": len(self._steps_s),
            "spread": spread,
            "first_step": self._first,
            "last_step": self._last,
        }


def block_of(brought: Sequence[dict[str, Any] | None], round_: int) -> Block | None:
    """The block of this round of which all ranks brought numbers; None: not all of them did."""
    measured = [each for each in brought if each is not None]
    if not measured or len(measured) != len(brought):
        return None
    slowest = max(measured, key=lambda each: float(each["step_s"]))
    times = {name: slowest[name] for name in ("step_s", "exposed_s", "spread")}
    return Block(round=round_, **{**measured[0], **times})


MOST_BYTES: Final = 2**26
"""Of weights that are compared after every block, in some 10 ms. Larger ones are compared when the trial ends."""


class Weights:
    """Those of one rank that its reducer reduces; on rank 0 also what is known of all ranks'.

    `parameters`: by name, in the same order on all ranks.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = dict(parameters)
        self._equal: list[bool] | None = None

    @property
    def few(self) -> bool:
        """Whether they can be compared after every block."""
        return sum(one.nbytes for one in self._parameters.values()) <= MOST_BYTES

    def marks(self) -> list[str]:
        """A checksum of each; empty for one that cannot be read, as on an accelerator."""
        found = _native.weight_marks([one.detach() for one in self._parameters.values()])
        return ["" if one is None else f"{one[0]:x}" for one in found]

    def compared(self, brought: Sequence[Mapping[str, Any]], on: str) -> str:
        """On rank 0: what is wrong, in words that go on a sentence; empty: nothing.

        `brought`: each rank's `marks`, and which parameters its reducer is `lacking`. `on`: as in `judge`.
        """
        for rank, one in enumerate(brought):
            if one["lacking"]:
                return f"the reducer of rank {rank} does not hold '{one['lacking'][0]}'"
        apart = self.judge([one["marks"] for one in brought], on)
        return apart and f"the weights are not the same on all ranks any more: {apart}"

    def judge(self, brought: Sequence[Sequence[str]], on: str) -> str:
        """On rank 0: which weights have come to differ while a cure was on, in a sentence; empty: none.

        `brought`: what `marks` found on each rank. `on`: the name of the latest cure that was on since the last look;
        `TODAY`: none was.
        """
        if len({len(marks) for marks in brought}) != 1:
            return ""
        before, self._equal = self._equal, [len(set(marks)) == 1 for marks in zip(*brought, strict=True)]
        if before is None or on == TODAY:
            return ""
        for name, was, equal, marks in zip(
            self._parameters, before, self._equal, zip(*brought, strict=True), strict=True
        ):
            if was and not equal:
                return f"'{name}' is {_others(marks)}"
        return ""


def _others(marks: Sequence[Any]) -> str:
    """Which ranks have other weights than most; all of them, where no half agrees."""
    (most, number), *_ = Counter(marks).most_common(1)
    others = [str(rank) for rank, mark in enumerate(marks) if mark != most]
    if 2 * number <= len(marks):
        return "different on ranks " + ", ".join(map(str, range(len(marks))))
    return f"different on rank{'s' if len(others) > 1 else ''} {', '.join(others)}"
