"""One row of pytest-benchmark's table, whose statistics are rounds that the harness measured.

pytest-benchmark times one test after the other, so whatever else the machine does hits one variant and not the next.
Here the selected variants of a comparison are measured once, interleaved, often in ranks that pytest-benchmark cannot
see; then each case replays its own rounds. Its table, JSON, comparisons and histograms thus say what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from harness.comparisons import Comparisons
from harness.rounds import ratio
from pyddpdiag.bench.intervals import Estimate, estimate

T = TypeVar("T")


class Replay:
    """Read before and after each round of `benchmark.pedantic`, it makes the round last as long as the measured one.

    Each round begins at 0, so its end minus its start is the measured value to the last bit.
    """

    # pytest-benchmark writes its timer's name into the JSON.
    __name__ = "replay_of_measured_rounds"

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, round_s: Sequence[float]) -> None:
        """Sets the seconds of the rounds to come."""
        self._readings = iter([reading for seconds in round_s for reading in (0.0, seconds)])

    def __call__(self) -> float:
        return next(self._readings)


@dataclass(frozen=True)
class Ratios:
    """A row's ratios, for the summary under the table."""

    group: str
    name: str
    ratios: tuple[str, ...]


class Row:
    """A selected case: measures its comparison if no other case did, and reports its own rounds."""

    def __init__(
        self,
        item: pytest.Function,
        benchmark: Any,
        clock: Replay,
        comparisons: Comparisons,
        summary: list[Ratios],
    ) -> None:
        self._item = item
        self._benchmark = benchmark
        self._clock = clock
        self._comparisons = comparisons
        self._summary = summary

    @property
    def timed(self) -> bool:
        """False under --benchmark-disable: everything runs once, no time is reported, and none is judged."""
        return bool(self._benchmark.enabled)

    def rounds(self, usual: int) -> int:
        """How many rounds to measure: `--rounds`, or as many as usual."""
        chosen: int | None = self._item.config.getoption("--rounds")
        return (chosen or usual) if self.timed else 1

    def judges(self, usual: int) -> bool:
        """Whether there are rounds enough to hold them against a goal."""
        return self.timed and self.rounds(usual) >= usual

    def once(
        self,
        parameter: str,
        measure: Callable[[list[Any]], T],
        needs: Callable[[Any], Iterable[Any]] = lambda _: (),
    ) -> T:
        """What `measure` returns; called by the first case of the comparison, for all of them.

        Args:
            parameter: of the test; cases that differ in it alone are measured together, interleaved.
            measure: gets the values of `parameter` to measure, and no others.
            needs: further values that a selected one is compared with; measured even if they were not selected.
        """
        return self._comparisons.measured(self._item, parameter, measure, needs)

    def report(
        self,
        group: str,
        round_s: Sequence[float],
        /,
        *,
        ratio_to: Mapping[str, Estimate] | None = None,
        speedup_over: Mapping[str, Estimate] | None = None,
        **extra_info: Any,
    ) -> None:
        """Makes these rounds the case's statistics.

        Args:
            group: rows that stand beside each other.
            round_s: seconds of each round.
            ratio_to: this row's time over another's, by that one's name; within a round.
            speedup_over: the other's time over this row's.
            extra_info: more for the JSON.
        """
        ratio_to, speedup_over = ratio_to or {}, speedup_over or {}
        self._benchmark.group = group
        self._benchmark.extra_info.update(
            {
                "median_s": estimate(round_s).as_dict(),
                "ratio_to": {name: found.as_dict() for name, found in ratio_to.items()},
                **(
                    {"speedup_over": {n: f.as_dict() for n, f in speedup_over.items()}}
                    if speedup_over
                    else {}
                ),
                **extra_info,
            }
        )
        self._clock.load(round_s)
        self._benchmark.pedantic(_nothing, rounds=len(round_s))
        if self.timed:
            ratios = [f"/ {name} {found}" for name, found in ratio_to.items()]
            ratios += [f"{name} / it {found}" for name, found in speedup_over.items()]
            self._summary.append(Ratios(group, self._item.name, tuple(ratios)))


def ratios(measured: Mapping[str, Sequence[float]], name: str, bases: Iterable[str]) -> dict[str, Estimate]:
    """For `ratio_to`: the time of `name` over that of each base."""
    return {base: ratio(measured, name, base) for base in bases}


def speedups(measured: Mapping[str, Sequence[float]], name: str, bases: Iterable[str]) -> dict[str, Estimate]:
    """For `speedup_over`: the time of each base over that of `name`."""
    return {base: ratio(measured, base, name) for base in bases}


def _nothing() -> None:
    """What pytest-benchmark calls once per round, while the clock replays how long the round took."""
