"""What one rank measures of a block of a trial, and the block that comes of all ranks' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pyddpdiag import _native
from pyddpdiag.model.tried import Block
from pyddpdiag.system.clock import monotonic_ns


class Measured:
    """The steps of the block that is on, each from one forward pass between two passes to the next one.

    Args:
        module: as the recorder knows it.
        core: the recorder's.
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
